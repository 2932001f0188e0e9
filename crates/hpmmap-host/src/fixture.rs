//! Fixture trees for tests. Panics on every error, as tests should.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::Root;

/// A temporary directory that stands for `/`.
pub struct Fixture {
    dir: tempfile::TempDir,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Fixture {
    /// An empty machine.
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// The tree's path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The tree as a root.
    pub fn root(&self) -> Root {
        Root::new(self.dir.path())
    }

    /// Writes a file and creates the directories above it.
    pub fn write(&self, path: &str, text: &str) {
        self.write_bytes(path, text.as_bytes());
    }

    /// As `write`, for any bytes.
    pub fn write_bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Removes a file or a whole directory.
    pub fn remove(&self, path: &str) {
        let path = self.dir.path().join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    /// Size of the memory blocks.
    pub fn block_size(&self, bytes: u64) {
        self.write(
            "sys/devices/system/memory/block_size_bytes",
            &format!("{bytes:x}\n"),
        );
    }

    /// Nodes that have memory, as a list.
    pub fn nodes(&self, list: &str) {
        self.write("sys/devices/system/node/has_memory", &format!("{list}\n"));
    }

    /// A memory block `index` of `node`.
    pub fn block(&self, node: u32, index: u64, state: &str, valid_zones: &str) {
        let dir = format!("sys/devices/system/memory/memory{index}");
        self.write(&format!("{dir}/state"), &format!("{state}\n"));
        self.write(&format!("{dir}/removable"), "1\n");
        self.write(&format!("{dir}/valid_zones"), &format!("{valid_zones}\n"));
        self.write(&format!("{dir}/phys_index"), &format!("{index:08x}\n"));
        let node_dir = self
            .dir
            .path()
            .join(format!("sys/devices/system/node/node{node}"));
        fs::create_dir_all(&node_dir).unwrap();
        symlink(
            format!("../../memory/memory{index}"),
            node_dir.join(format!("memory{index}")),
        )
        .unwrap();
    }

    /// The loaded module, without pools and jobs.
    pub fn module(&self) {
        let dir = "sys/kernel/hpmmap";
        self.write(&format!("{dir}/version"), "1.2.3\n");
        self.write(&format!("{dir}/user_limit_bytes"), "0\n");
        self.write(&format!("{dir}/hooks_active"), "0\n");
        self.write(&format!("{dir}/gigabytes"), "yes\n");
        self.write("proc/hpmmap", "");
        for sub in ["nodes", "jobs"] {
            fs::create_dir_all(self.dir.path().join(dir).join(sub)).unwrap();
        }
    }

    /// Sets the attachments and their bytes; the other counts are 10 to 15.
    pub fn windows(&self, attachments: u64, bytes: u64) {
        for (name, value) in [
            ("attachments", attachments),
            ("attached_bytes", bytes),
            ("faults", 10),
            ("retries", 11),
            ("entries_2m", 12),
            ("entries_4k", 13),
            ("entries_linux", 14),
            ("revoked", 15),
        ] {
            self.write(
                &format!("sys/kernel/hpmmap/windows/{name}"),
                &format!("{value}\n"),
            );
        }
    }

    /// Sets the files and their bytes, in one file system; one further block is pinned.
    pub fn shared(&self, files: u64, bytes: u64) {
        for (name, value) in [
            ("mounts", 1),
            ("files", files),
            ("held_bytes", bytes),
            ("pinned_bytes", 2 << 20),
        ] {
            self.write(
                &format!("sys/kernel/hpmmap/shared/{name}"),
                &format!("{value}\n"),
            );
        }
    }

    /// Makes the pool of a node; only the largest free block is zero.
    pub fn node_pool(&self, node: u32, total: u64, free: u64, largest: u64, pinned: u64) {
        let dir = format!("sys/kernel/hpmmap/nodes/node{node}");
        for (name, value) in [
            ("total_bytes", total),
            ("free_bytes", free),
            ("clean_bytes", largest),
            ("largest_free_bytes", largest),
            ("pinned_bytes", pinned),
            ("bad_bytes", 0),
        ] {
            self.write(&format!("{dir}/{name}"), &format!("{value}\n"));
        }
    }

    /// Makes a launch that holds 8 MB and has held more.
    pub fn job(&self, id: u64, uid: u32) {
        let dir = format!("sys/kernel/hpmmap/jobs/{id}");
        let stat: String = [
            ("uid", u64::from(uid)),
            ("strict", 1),
            ("page_size", 2 << 20),
            ("tick_khz", 2_500_000),
            ("processes", 2),
            ("processes_total", 5),
            ("address_spaces_total", 6),
            ("programs_registered", 4),
            ("programs_left_out", 1),
            ("programs_secure", 0),
            ("programs_32bit", 0),
            ("programs_failed", 0),
            ("held_bytes", 8 << 20),
            ("peak_bytes", 40 << 20),
            ("peak_one_bytes", 32 << 20),
            ("reuse_bytes", 0),
            ("linux_bytes", 4096),
            ("few_bytes", 8192),
            ("pins_waiting", 1),
            ("lowest_free_bytes", 512 << 20),
            ("limited_default", 2),
            ("refusals", 3),
            ("failures", 0),
            ("large_wanted_bytes", 0),
            ("large_missed_bytes", 0),
            ("entries_1g", 3),
            ("splits_1g", 2),
            ("joins_1g", 1),
            ("entries_2m", 20),
            ("entries_4k", 100),
            ("faults", 11),
            ("faults_kernel", 1),
            ("faults_fork", 10),
            ("faults_reserved", 0),
            ("faults_first_touch", 0),
            ("faults_linux", 1),
            ("faults_changing", 0),
            ("faults_unmapped", 1),
            ("fallback_bytes", 20 << 20),
            ("fallbacks_mmap", 2),
            ("fallbacks_brk", 1),
            ("fallbacks_exec", 0),
            ("fallbacks_block", 1),
            ("fallbacks_asked", 0),
            ("fallbacks_exhausted", 4),
            ("fallbacks_limit", 0),
            ("fallbacks_other", 0),
            ("stalls_calls", 7),
            ("stalls_calls_ticks", 25_000),
            ("stalls_calls_worst_ticks", 10_000),
            ("stalls_zeroing", 1),
            ("stalls_zeroing_ticks", 1_500_000),
            ("stalls_zeroing_worst_ticks", 1_500_000),
            ("stalls_reclaim", 0),
            ("stalls_reclaim_ticks", 0),
            ("stalls_reclaim_worst_ticks", 0),
            ("stalls_pins", 0),
            ("stalls_pins_ticks", 0),
            ("stalls_pins_worst_ticks", 0),
            ("fork_copied_bytes", 4 << 20),
            ("cleared_bytes", 2 << 20),
            ("placed_remote_bytes", 8 << 20),
            ("placed_runs", 3),
            ("placed_bytes_node0", 32 << 20),
            ("placed_bytes_node1", 8 << 20),
            ("something_newer", 1),
        ]
        .iter()
        .map(|(name, value)| format!("{name} {value}\n"))
        .collect();
        self.write(&format!("{dir}/stat"), &stat);
        self.write(
            &format!("{dir}/latency_mmap"),
            "ticks 5004000000\nworst_ticks 5000000000\n1280 990\n4096 9\ninf 1\n",
        );
        for call in ["munmap", "mremap", "brk"] {
            self.write(&format!("{dir}/latency_{call}"), "ticks 0\nworst_ticks 0\n");
        }
        self.write(
            &format!("{dir}/programs"),
            "2 0 3 2 0 4 3 lmp\n2 1 9 8 0 0 0 mpirun\n1 0 0 0 0 0 0 my tool\n1 0 0 0 0 0 0 \n",
        );
        self.write(
            &format!("{dir}/fault_ranges"),
            "1234 0x7f0000200000 0x7f0000400000 fork 10\nunlisted 2\n",
        );
    }

    /// Makes a registered process that holds 8 MB.
    pub fn context(&self, id: u64, pid: u32, uid: u32) {
        let values = [
            ("id", id),
            ("pid", u64::from(pid)),
            ("job", 3),
            ("uid", u64::from(uid)),
            ("strict", 1),
            ("page_size", 2 << 20),
            ("held_bytes", 8 << 20),
            ("reuse_bytes", 0),
            ("cleared_bytes", 2 << 20),
            ("linux_bytes", 4096),
            ("few_bytes", 8192),
            ("fallbacks", 2),
            ("faults", 11),
            ("faults_kernel", 1),
            ("pins_waiting", 0),
            ("something_newer", 1),
        ];
        self.write(
            &format!("proc/{pid}/smaps"),
            "7f0000000000-7f0000800000 rw-s 7f0000000000 00:3a 1419\n\
             Rss: 6148 kB\nFilePmdMapped: 6144 kB\n\
             7f0000800000-7f0000900000 rw-p 00000000 00:00 0\nRss: 64 kB\n",
        );
        let lines = values
            .iter()
            .map(|(name, value)| format!("{name} {value}\n"));
        self.edit("proc/hpmmap", |text| text + &lines.collect::<String>());
    }

    /// Makes a registered process of another user.
    pub fn hidden_context(&self, id: u64) {
        self.edit("proc/hpmmap", |text| format!("{text}id {id}\n"));
    }

    /// Changes the contents of a file.
    pub fn edit(&self, path: &str, change: impl FnOnce(String) -> String) {
        let text = fs::read_to_string(self.dir.path().join(path)).unwrap();
        self.write(path, &change(text));
    }
}
