// Package vectors holds the golden vectors of package protocol: messages in the bytes of the implementations that
// kvferry talks to, and in its own where a message is kvferry's. The tests of package protocol compare its codecs with
// them, and package fuzz derives the seeds of its targets from them.
package vectors

import (
	_ "embed"
	"encoding/hex"
	"strings"
)

//go:embed vectors.txt
var file string

// A Vector is one message as it is sent.
type Vector struct {
	Name    string
	Payload []byte
}

// All returns every vector in the order of vectors.txt. The caller owns the payloads.
func All() []Vector {
	var all []Vector
	blocks := strings.Split("\n"+file, "\ndecode ")
	for _, block := range blocks[1:] { // The first one is the comment above all vectors.
		name, rest, _ := strings.Cut(block, "\n")
		digits, _, _ := strings.Cut(rest, "\n----")
		payload, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			panic("BUG: vectors.txt: " + name + ": " + err.Error())
		}
		all = append(all, Vector{name, payload})
	}
	return all
}
