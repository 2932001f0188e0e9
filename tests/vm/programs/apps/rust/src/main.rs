//! Threads and patterns of allocation; prints digests. Argument: scale.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{c_char, c_int, c_uint};
use std::hash::{Hash, Hasher};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

// Links the library.
use bzip2_sys as _;

extern "C" {
    fn BZ2_bzBuffToBuffCompress(
        dest: *mut c_char,
        dest_len: *mut c_uint,
        source: *const c_char,
        source_len: c_uint,
        block_size: c_int,
        verbosity: c_int,
        work_factor: c_int,
    ) -> c_int;
}

/// Marsaglia's xorshift: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn digest(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Pieces of all sizes, freed in another order than they were made.
fn pieces(seed: u64, rounds: usize) -> u64 {
    let mut random = Random(seed);
    let mut held: Vec<Option<Vec<u8>>> = (0..400).map(|_| None).collect();
    let mut sum = 0u64;
    for round in 0..rounds {
        let slot = random.next() as usize % held.len();
        // One in 64 is beyond malloc's threshold for mmap.
        let size = match random.next() % 64 {
            0 => 1 << 18,
            n => (n * n) as usize + 1,
        };
        if let Some(old) = held[slot].take() {
            sum = sum
                .wrapping_mul(31)
                .wrapping_add(old[old.len() - 1] as u64 + old.len() as u64);
        }
        let mut fresh = vec![0u8; size];
        // Fresh memory must read as zero, wherever it comes from.
        assert!(
            fresh.iter().all(|&byte| byte == 0),
            "dirty memory in round {round}"
        );
        fresh[size - 1] = round as u8;
        fresh[size / 2] = 1;
        held[slot] = Some(fresh);
    }
    sum
}

fn compressed(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0u8; data.len() + data.len() / 100 + 600];
    let mut length = out.len() as u32;
    // SAFETY: both buffers are as long as is said.
    let status = unsafe {
        BZ2_bzBuffToBuffCompress(
            out.as_mut_ptr().cast(),
            &mut length,
            data.as_ptr().cast(),
            data.len() as u32,
            9,
            0,
            0,
        )
    };
    assert_eq!(status, 0, "bzip2");
    out.truncate(length as usize);
    out
}

fn main() {
    let scale: usize = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("usage: rust SCALE");

    let sums: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=6)
            .map(|seed| scope.spawn(move || pieces(seed, 1500 * scale)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread"))
            .collect()
    });
    println!("pieces: {sums:x?}");

    // Made in one thread, freed in another.
    let (sender, receiver) = mpsc::sync_channel::<Vec<u64>>(16);
    let maker = thread::spawn(move || {
        let mut random = Random(77);
        for _ in 0..200 * scale {
            let size = random.next() % 5000;
            sender.send((0..size).collect()).expect("the receiver");
        }
    });
    let received: u64 = receiver.iter().map(|piece| piece.iter().sum::<u64>()).sum();
    maker.join().expect("the maker");
    println!("received: {received}");

    // Growth by realloc, up to tens of megabytes.
    let mut grown = Vec::new();
    for n in 0..3_000_000u64 {
        grown.push(n.wrapping_mul(n));
    }
    println!(
        "grown: {} {:x}",
        grown.len(),
        digest(&grown[grown.len() - 100_000..])
    );
    grown.truncate(1000);
    grown.shrink_to_fit();
    println!("shrunk: {:x}", digest(&grown));

    let mut random = Random(5);
    let mut tree = BTreeMap::new();
    let mut map = HashMap::new();
    let mut queue = VecDeque::new();
    for n in 0..20_000 * scale {
        tree.insert(random.next() % 50_000, n.to_string());
        *map.entry(random.next() % 1000).or_insert(0usize) += n;
        queue.push_back(Box::new(n));
        if n % 3 == 0 {
            queue.pop_front();
        }
    }
    let mut pairs: Vec<_> = map.into_iter().collect();
    pairs.sort_unstable();
    println!(
        "tree: {} {:x}, map: {:x}, queue: {} {:x}",
        tree.len(),
        digest(&tree),
        digest(pairs),
        queue.len(),
        digest(&queue)
    );

    let text: Vec<u8> = (0..100_000)
        .map(|_| b'a' + (random.next() % 7) as u8)
        .collect();
    let packed = compressed(&text);
    println!("packed: {} {:x}", packed.len(), digest(&packed));

    // Short threads: their stacks come and go.
    let total = Arc::new(Mutex::new(0u64));
    for batch in 0..20 {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let total = Arc::clone(&total);
                thread::spawn(move || {
                    let local = [n + batch; 1000];
                    *total.lock().expect("the lock") += local.iter().sum::<u64>();
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a thread");
        }
    }
    println!("threads: {}", total.lock().expect("the lock"));

    // A panic unwinds the stack and its allocations.
    std::panic::set_hook(Box::new(|_| {}));
    let caught = thread::spawn(|| {
        let held = vec![1u8; 1 << 20];
        assert!(held.is_empty(), "on purpose");
    })
    .join();
    println!("panic caught: {}", caught.is_err());
}
