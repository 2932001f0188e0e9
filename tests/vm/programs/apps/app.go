// Goroutines, maps, garbage and memory given back; prints digests. Argument: scale.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"sync"
)

type node struct {
	left, right *node
	value       int
}

func build(depth int) *node {
	if depth == 0 {
		return &node{value: 1}
	}
	return &node{build(depth - 1), build(depth - 1), depth}
}

func (n *node) sum() int {
	if n == nil {
		return 0
	}
	return n.value + n.left.sum() + n.right.sum()
}

// A stack that grows by copying.
func deep(n int) int {
	var pad [128]byte
	pad[n%128] = byte(n)
	if n == 0 {
		return int(pad[0])
	}
	return deep(n-1) + int(pad[n%128])&1
}

func work(seed int64, rounds int) [32]byte {
	random := rand.New(rand.NewSource(seed))
	kept := make(map[int][]byte)
	for i := 0; i < rounds; i++ {
		data := make([]byte, random.Intn(3000)+1)
		random.Read(data[:1])
		kept[random.Intn(500)] = data
	}
	keys := make([]int, 0, len(kept))
	for key := range kept {
		keys = append(keys, key)
	}
	sort.Ints(keys)
	hash := sha256.New()
	for _, key := range keys {
		fmt.Fprintln(hash, key)
		hash.Write(kept[key])
	}
	var result [32]byte
	copy(result[:], hash.Sum(nil))
	return result
}

func check(err error) {
	if err != nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
}

func main() {
	scale, err := strconv.Atoi(os.Args[1])
	check(err)
	fmt.Println(runtime.Version())

	results := make([][32]byte, 8)
	var group sync.WaitGroup
	for i := range results {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			results[i] = work(int64(i), 4000*scale)
		}(i)
	}
	group.Wait()
	for i, result := range results {
		fmt.Printf("work %d: %x\n", i, result)
	}

	for round := 0; round < 3; round++ {
		fmt.Println("tree:", build(15).sum())
		debug.FreeOSMemory()
	}
	fmt.Println("deep:", deep(100000))

	big := make([]byte, 64<<20)
	for i := 0; i < len(big); i += 4096 {
		big[i] = byte(i >> 12)
	}
	fmt.Printf("big: %x\n", sha256.Sum256(big[:4<<20]))
	big = nil
	debug.FreeOSMemory()

	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	for i := 0; i < 20000*scale; i++ {
		fmt.Fprintln(writer, i*i)
	}
	check(writer.Close())
	fmt.Printf("packed: %d %x\n", packed.Len(), sha256.Sum256(packed.Bytes()))

	for i := 0; i < 5; i++ {
		out, err := exec.Command("sh", "-c", "echo child "+strconv.Itoa(i)).CombinedOutput()
		check(err)
		fmt.Print(string(out))
	}

	// The runtime turns this signal into an error.
	func() {
		defer func() { fmt.Println("recovered:", recover()) }()
		var nothing *node
		fmt.Println(nothing.value)
	}()
}
