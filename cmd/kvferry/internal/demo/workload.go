package demo

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/trace"
)

// A job is one request of the trace as the demo plays it: the chunks of its prompt.
type job struct {
	index   int
	id      string
	arrival time.Duration
	keys    []string
	// lastTokens is how many tokens the last chunk holds; 0 is a full chunk.
	lastTokens int
}

// keysOf names the chunks of a prompt. A trace's ids stand for blocks after equal prefixes, so block
// and position in it name a chunk; the partial last one of a prompt is not the full one of another.
func keysOf(req trace.Request, chunkTokens int) (keys []string, lastTokens int) {
	for at := 0; at < req.InputTokens; at += chunkTokens {
		tokens := min(chunkTokens, req.InputTokens-at)
		h := fnv.New64a()
		fmt.Fprintf(h, "%d/%d/%d/%d", req.Blocks[at/trace.BlockTokens], at, tokens, chunkTokens)
		// Directories know hashes of 64 bits; one that starts with 0 would not be the text of an integer.
		keys = append(keys, fmt.Sprintf("kvferry-demo@1@0@1%015x@bfloat16", h.Sum64()>>4))
		lastTokens = tokens
	}
	if lastTokens == chunkTokens {
		lastTokens = 0
	}
	return keys, lastTokens
}

// freshKeys name chunks that no request has.
func freshKeys(of, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("kvferry-demo@1@0@2%04x%04x@bfloat16", of, i)
	}
	return keys
}

func jobsOf(requests []trace.Request, chunkTokens int) []job {
	jobs := make([]job, len(requests))
	for i, req := range requests {
		keys, last := keysOf(req, chunkTokens)
		jobs[i] = job{index: i, id: fmt.Sprintf("request-%d", i), arrival: req.Arrival, keys: keys, lastTokens: last}
	}
	return jobs
}

// batches cuts a job's keys into pieces of at most n.
func (j *job) batches(n int) [][]string {
	var all [][]string
	for from := 0; from < len(j.keys); from += n {
		all = append(all, j.keys[from:min(from+n, len(j.keys))])
	}
	return all
}

// lastTokensOf is what a batch says of its last chunk: only the job's last can be partial.
func (j *job) lastTokensOf(batch, batches int) int {
	if batch == batches-1 {
		return j.lastTokens
	}
	return 0
}
