# Ends a server and removes its directory once standard input closes, that is once the owner is dead or lets go.
# Arguments: the directory. Signals to the owner's process group must not end the watchdog.
trap '' HUP INT TERM QUIT
directory=$1
while read -r _; do :; done

# A launched process notes its id and then looks for this file: from here on it either finds none or is found below.
rm -f "$directory/open"

# An id may belong to somebody else by now: only a process that names the directory is one of ours. A dead process that
# nobody has waited for has no arguments left and counts as gone.
ours() {
  if [ -d /proc/self ]; then
    arguments=$(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline")
  else
    arguments=$(ps -o args= -p "$1" 2>/dev/null)
  fi
  case "$arguments" in *"$directory"*) return 0 ;; *) return 1 ;; esac
}

children() {
  if [ -d /proc/self ]; then
    for file in /proc/[0-9]*/stat; do
      read -r line 2>/dev/null <"$file" || continue
      id=${line%% *}
      rest=${line##*) ?}
      set -- "$1" $rest
      [ "$2" = "$1" ] && echo "$id"
    done
  else
    ps -A -o pid=,ppid= | while read -r id parent; do [ "$parent" = "$1" ] && echo "$id"; done
  fi
}

launched() {
  for file in "$directory"/launched/*; do
    id=${file##*/}
    case "$id" in '*') ;; *) ours "$id" && echo "$id" ;; esac
  done
}

# Immediate shutdown; a paused server must run to see the signal.
for id in $(launched); do
  kill -QUIT "$id" 2>/dev/null
  for child in $(children "$id"); do kill -CONT "$child" 2>/dev/null; done
  kill -CONT "$id" 2>/dev/null
done

tries=0
while [ -n "$(launched)" ] && [ "$tries" -lt 140 ]; do
  tries=$((tries + 1))
  sleep 0.05
done

# Stopped first: a stopped parent makes no more children.
for id in $(launched); do
  kill -STOP "$id" 2>/dev/null
  segment=$(sed -n '7s/^ *[0-9]* *\([0-9]*\).*/\1/p' "$directory/data/postmaster.pid" 2>/dev/null)
  for child in $(children "$id"); do kill -KILL "$child" 2>/dev/null; done
  kill -KILL "$id" 2>/dev/null
  [ -n "$segment" ] && ipcrm -m "$segment" 2>/dev/null
done

tries=0
while [ "$tries" -lt 100 ]; do
  # The second is what it is called until its owner has filled it.
  rm -rf "$directory" "$directory.new" 2>/dev/null && break
  tries=$((tries + 1))
  sleep 0.05
done
