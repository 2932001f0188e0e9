// Buffers, objects, workers, WebAssembly, children; prints digests. Argument: scale.
'use strict';

const { createHash } = require('crypto');
const { execFileSync } = require('child_process');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib');

const digest = (data) => createHash('sha256').update(data).digest('hex').slice(0, 32);

// Park and Miller's generator: the same numbers everywhere.
function generator(seed) {
	let state = seed;
	return () => (state = (state * 48271) % 2147483647);
}

function work(seed, rounds) {
	const next = generator(seed);
	const kept = new Map();
	for (let i = 0; i < rounds; i++) {
		const key = next() % 700;
		kept.set(key, { key, text: String(next()).repeat(next() % 40), list: [i, i * 2, [i]] });
	}
	return digest(JSON.stringify([...kept.entries()].sort((a, b) => a[0] - b[0])));
}

function inWorker(seed, rounds) {
	return new Promise((resolve, reject) => {
		const worker = new Worker(__filename, { workerData: { seed, rounds } });
		worker.on('message', resolve);
		worker.on('error', reject);
	});
}

// (module (memory (export "m") 1 600) (func (export "g") (param i32) (result i32) local.get 0 memory.grow))
const module_ = new Uint8Array([
	0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 5, 5, 1, 1, 1, 216, 4,
	7, 9, 2, 1, 109, 2, 0, 1, 103, 0, 0, 10, 8, 1, 6, 0, 32, 0, 64, 0, 11,
]);

async function main() {
	const scale = Number(process.argv[2]);

	console.log('work:', work(42, 20000 * scale));
	console.log('workers:', await Promise.all([1, 2].map((seed) => inWorker(seed, 8000 * scale))));

	const buffers = [];
	for (let i = 0; i < 16; i++)
		buffers.push(Buffer.alloc(2 << 20, i));
	console.log('buffers:', digest(Buffer.concat(buffers)));
	const numbers = new Float64Array(200000 * scale);
	const next = generator(5);
	for (let i = 0; i < numbers.length; i++)
		numbers[i] = next() / 2147483647;
	numbers.sort();
	console.log('sorted:', digest(Buffer.from(numbers.buffer)));
	if (global.gc)
		global.gc();

	const packed = zlib.deflateSync(Buffer.concat(buffers.slice(0, 2)));
	console.log('packed:', packed.length, digest(packed), digest(zlib.inflateSync(packed)));

	// Memory that grows within a large reservation.
	const instance = new WebAssembly.Instance(new WebAssembly.Module(module_));
	const grown = [];
	for (let i = 0; i < 20; i++) {
		grown.push(instance.exports.g(16));
		new Uint8Array(instance.exports.m.buffer).fill(i, -65536);
	}
	const memory = new Uint8Array(instance.exports.m.buffer);
	let sum = 0;
	for (let i = 0; i < memory.length; i += 1024)
		sum += memory[i];
	console.log('wasm:', grown.join(' '), memory.length, sum);

	for (let i = 0; i < 4; i++)
		process.stdout.write(execFileSync('sh', ['-c', `echo child ${i}`]));
}

if (isMainThread)
	main().catch((error) => { console.error(error); process.exit(1); });
else
	parentPort.postMessage(work(workerData.seed, workerData.rounds));
