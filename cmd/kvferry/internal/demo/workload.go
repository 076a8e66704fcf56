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
	// lastTokens is the number of tokens in the last chunk; 0 means a full chunk.
	lastTokens int
}

// promptKeys returns the keys of the chunks of a prompt. Equal IDs in a trace stand for equal blocks after equal
// prefixes, so the block and the position name a chunk. The token count is part of the key, so that the keys of a
// partial last chunk and of the full chunk of a longer prompt differ.
func promptKeys(req trace.Request, chunkTokens int) (keys []string, lastTokens int) {
	for at := 0; at < req.InputTokens; at += chunkTokens {
		tokens := min(chunkTokens, req.InputTokens-at)
		h := fnv.New64a()
		fmt.Fprintf(h, "%d/%d/%d/%d", req.Blocks[at/trace.BlockTokens], at, tokens, chunkTokens)
		// Directories use hashes of 64 bits. The leading 1 keeps the text a valid integer, which must not start with 0.
		keys = append(keys, fmt.Sprintf("kvferry-demo@1@0@1%015x@bfloat16", h.Sum64()>>4))
		lastTokens = tokens
	}
	if lastTokens == chunkTokens {
		lastTokens = 0
	}
	return keys, lastTokens
}

// freshKeys returns keys of chunks that no request has.
func freshKeys(of, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("kvferry-demo@1@0@2%04x%04x@bfloat16", of, i)
	}
	return keys
}

func newJobs(requests []trace.Request, chunkTokens int) []job {
	jobs := make([]job, len(requests))
	for i, req := range requests {
		keys, last := promptKeys(req, chunkTokens)
		jobs[i] = job{index: i, id: fmt.Sprintf("request-%d", i), arrival: req.Arrival, keys: keys, lastTokens: last}
	}
	return jobs
}

// keyBatches divides a job's keys into batches of at most n keys.
func (j *job) keyBatches(n int) [][]string {
	var all [][]string
	for from := 0; from < len(j.keys); from += n {
		all = append(all, j.keys[from:min(from+n, len(j.keys))])
	}
	return all
}

// batchLastTokens returns the token count of a batch's last chunk, as in job.lastTokens. Only the last chunk of the job
// can be partial.
func (j *job) batchLastTokens(batch, batches int) int {
	if batch == batches-1 {
		return j.lastTokens
	}
	return 0
}
