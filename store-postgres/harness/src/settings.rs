/// What a started server is told besides PostgreSQL's defaults. Durability (fsync, synchronous_commit) stays as it is
/// by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Connection slots. None is set aside for superusers, so that this is the exact number.
    pub max_connections: u32,
    /// Shared buffers, in MiB.
    pub shared_buffers_mib: u32,
    /// Further parameters, as in `postgresql.conf`: name and unquoted value.
    pub parameters: Vec<(String, String)>,
}

impl Default for Settings {
    /// 100 connections, 32 MiB of shared buffers.
    fn default() -> Self {
        Settings { max_connections: 100, shared_buffers_mib: 32, parameters: Vec::new() }
    }
}

impl Settings {
    /// The lines appended to `postgresql.conf` of a cluster whose socket lies in `socket_directory`.
    pub(crate) fn render(&self, socket_directory: &str) -> String {
        let mut lines = String::new();
        let mut line = |name: &str, value: &str| {
            lines.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        };
        line("listen_addresses", "127.0.0.1");
        line("unix_socket_directories", socket_directory);
        line("unix_socket_permissions", "0700");
        line("max_connections", &self.max_connections.to_string());
        line("superuser_reserved_connections", "0");
        line("shared_buffers", &format!("{}MB", self.shared_buffers_mib));
        // Files in the data directory go with it; POSIX segments of a killed server would stay.
        line("dynamic_shared_memory_type", "mmap");
        for (name, value) in &self.parameters {
            line(name, value);
        }
        lines
    }
}
