package fuzz

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

//go:embed seeds
var corpora embed.FS

// corpusHead begins each file of a corpus, in the format of Go's own fuzzer.
const corpusHead = "go test fuzz v1\n[]byte("

// Seeds are the target's inputs to begin with: golden vectors, known attacks, and what was once
// found, in the order of their names. They are the caller's.
func (t Target) Seeds() [][]byte {
	folder := path.Join("seeds", t.name)
	files, err := fs.ReadDir(corpora, folder)
	if err != nil {
		panic("BUG: " + t.name + " has no seeds: " + err.Error()) // A test of this package sees it.
	}
	seeds := make([][]byte, 0, len(files))
	for _, file := range files {
		text, err := fs.ReadFile(corpora, path.Join(folder, file.Name()))
		if err != nil {
			panic("BUG: " + err.Error())
		}
		seed, err := parseSeed(string(text))
		if err != nil {
			panic(fmt.Sprintf("BUG: seed %s of %s: %v", file.Name(), t.name, err))
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

func parseSeed(text string) ([]byte, error) {
	quoted, ok := strings.CutPrefix(text, corpusHead)
	quoted, closed := strings.CutSuffix(quoted, ")\n")
	if !ok || !closed {
		return nil, fmt.Errorf("want %q, a Go string, and )", corpusHead)
	}
	s, err := strconv.Unquote(quoted)
	return []byte(s), err
}
