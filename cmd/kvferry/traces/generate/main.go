// Command generate writes the trace that ships with kvferry. It uses a random generator with a fixed seed, so that the
// output is the same every time; a test compares the output with the file.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
)

const (
	blockTokens    = 512 // tokens of the block that a hash ID stands for, as in the published traces
	traceMillis    = 180_000
	conversations  = 22
	turnsMax       = 5
	systemPrompts  = 3
	documentEvery  = 7 // every seventh conversation begins with a long document
	inputTokensMax = 8192
)

func main() {
	out := flag.String("o", "", "file to write; standard output if empty")
	flag.Parse()
	data := generateTrace()
	if *out == "" {
		os.Stdout.Write(data) //nolint:errcheck // There is no way to report the error.
		return
	}
	if existing, err := os.ReadFile(*out); err == nil && !bytes.HasPrefix(existing, []byte(`{"timestamp": `)) {
		log.Fatalf("%s is there and is no trace; name another file", *out)
	}
	if err := os.WriteFile(*out, data, 0o644); err != nil {
		log.Fatal(err)
	}
}

type request struct {
	at            int // milliseconds
	input, output int // tokens
	blocks        []int
}

// A generator draws the random numbers and assigns the block IDs.
type generator struct {
	rng  *rand.Rand
	next int
}

// extendBlocks appends IDs for new text until the blocks cover the given number of tokens. A partial last block gets a
// new ID, because its content has changed.
func (w *generator) extendBlocks(blocks []int, before, tokens int) []int {
	blocks = slices.Clone(blocks[:before/blockTokens])
	for len(blocks)*blockTokens < tokens {
		blocks = append(blocks, w.next)
		w.next++
	}
	return blocks
}

func (w *generator) drawBetween(low, high int) int { return low + w.rng.IntN(high-low) }

func generateTrace() []byte {
	w := &generator{rng: rand.New(rand.NewPCG(2, 512))}
	// System prompts end at the end of a block, so that conversations can share the prompt's blocks.
	prompts := make([][]int, systemPrompts)
	for i := range prompts {
		prompts[i] = w.extendBlocks(nil, 0, (i+1)*blockTokens)
	}
	var all []request
	for i := range conversations {
		all = append(all, w.drawConversation(i, prompts[w.rng.IntN(systemPrompts)])...)
	}
	slices.SortStableFunc(all, func(a, b request) int { return a.at - b.at })
	first := all[0].at
	for i := range all {
		all[i].at -= first
	}
	return formatTrace(all)
}

// drawConversation returns the turns of a chat. Each turn has all previous turns and answers as its prefix, and arrives
// when the user has had time to read the previous answer.
func (w *generator) drawConversation(i int, prompt []int) []request {
	var turns []request
	at := w.rng.IntN(traceMillis * 3 / 4)
	blocks, tokens := prompt, len(prompt)*blockTokens
	for turn := range w.drawBetween(1, turnsMax+1) {
		before := tokens
		tokens += w.drawBetween(20, 600)
		if turn == 0 && i%documentEvery == 0 {
			tokens += w.drawBetween(2000, 5000)
		}
		output := w.drawBetween(10, 500)
		if at >= traceMillis || tokens > inputTokensMax {
			break
		}
		blocks = w.extendBlocks(blocks, before, tokens)
		turns = append(turns, request{at, tokens, output, blocks})
		// The answer is part of the prompt of the next turn.
		at += output*20 + w.drawBetween(3_000, 25_000)
		promptTokens := tokens
		tokens += output
		blocks = w.extendBlocks(blocks, promptTokens, tokens)
	}
	return turns
}

func formatTrace(all []request) []byte {
	var b bytes.Buffer
	for _, r := range all {
		ids := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(r.blocks), "[]")), ", ")
		fmt.Fprintf(&b, "{\"timestamp\": %d, \"input_length\": %d, \"output_length\": %d, \"hash_ids\": [%s]}\n", r.at,
			r.input, r.output, ids)
	}
	return b.Bytes()
}
