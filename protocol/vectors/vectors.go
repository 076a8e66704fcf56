// Package vectors holds the golden vectors of package protocol: messages in the bytes of the implementations with which
// kvferry exchanges messages, and in kvferry's own bytes where the message belongs to kvferry. The tests of package
// protocol compare the codecs with the vectors, and package fuzz derives the seeds of the targets from the vectors.
package vectors

import (
	_ "embed"
	"encoding/hex"
	"strings"
)

//go:embed vectors.txt
var file string

// A Vector is a message as the sender writes it.
type Vector struct {
	Name    string
	Payload []byte
}

// All returns every vector in the order of vectors.txt. The caller owns the payloads.
func All() []Vector {
	var all []Vector
	blocks := strings.Split("\n"+file, "\ndecode ")
	for _, block := range blocks[1:] { // The first block is the comment above all vectors.
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
