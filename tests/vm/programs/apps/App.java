import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.IntStream;

/** Garbage, long-lived objects, threads, direct buffers; prints digests. Argument: scale. */
public class App {
	record Point(int x, int y) { }

	static String digest(byte[] data) throws Exception {
		StringBuilder text = new StringBuilder();
		for (byte b : MessageDigest.getInstance("SHA-256").digest(data))
			text.append(String.format("%02x", b));
		return text.toString();
	}

	/** Keeps a part of what it makes, so that every generation has work. */
	static long garbage(int seed, int rounds) {
		Random random = new Random(seed);
		HashMap<Point, byte[]> kept = new HashMap<>();
		long sum = 0;
		for (int i = 0; i < rounds; i++) {
			byte[] data = new byte[random.nextInt(2000)];
			if (data.length > 0)
				data[data.length - 1] = (byte) i;
			kept.put(new Point(random.nextInt(40), random.nextInt(40)), data);
			if (i % 1000 == 999)
				for (byte[] d : kept.values())
					sum += d.length + (d.length > 0 ? d[d.length - 1] : 0);
		}
		return sum;
	}

	public static void main(String[] args) throws Exception {
		int scale = Integer.parseInt(args[0]);

		long[] sums = new long[4];
		Thread[] threads = new Thread[sums.length];
		for (int i = 0; i < threads.length; i++) {
			int n = i;
			threads[i] = new Thread(() -> sums[n] = garbage(n, 10000 * scale));
			threads[i].start();
		}
		for (int i = 0; i < threads.length; i++) {
			threads[i].join();
			System.out.println("garbage " + i + ": " + sums[i]);
		}

		TreeMap<Integer, String> tree = new TreeMap<>();
		Random random = new Random(7);
		for (int i = 0; i < 20000 * scale; i++)
			tree.put(random.nextInt(), Integer.toString(i, 36));
		System.out.println("tree: " + tree.size() + " " + digest(tree.toString().getBytes()));

		System.out.println("parallel: " + IntStream.range(0, 200000 * scale).parallel()
				.mapToLong(i -> (long) i * i % 1000003).sum());

		// Arrays of many megabytes, and memory outside the heap.
		List<int[]> large = new ArrayList<>();
		for (int i = 0; i < 8; i++) {
			int[] array = new int[1 << 20];
			for (int j = i; j < array.length; j += 1024)
				array[j] = j;
			large.add(array);
		}
		System.gc();
		long check = 0;
		for (int[] array : large)
			for (int j = 0; j < array.length; j += 256)
				check += array[j];
		System.out.println("large: " + check);
		ByteBuffer direct = ByteBuffer.allocateDirect(16 << 20);
		for (int i = 0; i < direct.capacity(); i += 4096)
			direct.putInt(i, i);
		byte[] copy = new byte[1 << 16];
		direct.position(8 << 20).get(copy);
		System.out.println("direct: " + digest(copy));

		// A process of its own: fork and exec of a large process.
		Process child = new ProcessBuilder("sh", "-c", "echo child; exit 7").redirectErrorStream(true).start();
		System.out.print(new String(child.getInputStream().readAllBytes()));
		System.out.println("status: " + child.waitFor());

		try {
			recurse(1);
		} catch (StackOverflowError e) {
			System.out.println("overflow caught");
		}
		try {
			byte[][] all = new byte[1000][];
			for (int i = 0; i < all.length; i++)
				all[i] = new byte[16 << 20];
			System.out.println("no limit");
		} catch (OutOfMemoryError e) {
			System.out.println("heap limit kept");
		}
		// What the virtual machine does with a null pointer is a signal.
		try {
			Object nothing = args.length > 5 ? args : null;
			System.out.println(nothing.hashCode());
		} catch (NullPointerException e) {
			System.out.println("null caught");
		}
	}

	static int recurse(int n) {
		return recurse(n + 1) + n;
	}
}
