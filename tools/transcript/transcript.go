// Package transcript plays transcripts. A transcript is a file below a package's testdata with directives for a state
// machine and the expected output of each directive. The package uses github.com/cockroachdb/datadriven, whose flag
// -rewrite accepts new outputs. Package transcript parses the directives; each test defines their meaning.
//
// For example, a test calls Play with a folder and a function that carries out a directive, which switches over Cmd and
// reads the arguments with Value, IntValue and WordAt.
package transcript

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvferry/kvferry/effects"
)

// A Directive is a command of a transcript: a verb (Cmd), then words, and keys with values (CmdArgs), and lines of
// input. A malformed argument fails the test, and so does an argument that the test has not read, because it may be
// misspelt.
type Directive struct {
	*datadriven.TestData
	T *testing.T

	readArgs map[int]bool // indexes in CmdArgs of the arguments that were read
}

// Play plays all files below a folder. For each file, Play calls begin, which returns the function that carries out the
// file's directives and returns their output.
func Play(t *testing.T, folder string, begin func() (play func(Directive) string)) {
	datadriven.Walk(t, folder, func(t *testing.T, path string) {
		if filepath.Ext(path) == ".fail" {
			return // A failed property test has left this file.
		}
		play := begin()
		datadriven.RunTest(t, path, func(t *testing.T, data *datadriven.TestData) string {
			d := Directive{data, t, map[int]bool{}}
			out := play(d)
			if rest := d.unreadArgs(); len(rest) > 0 {
				t.Fatalf("%s: %s does not read %v: take it out, or spell it as it is read", d.Pos, d.Cmd, rest)
			}
			return out
		})
	})
}

// unreadArgs returns the words and keys that the test has not read.
func (d Directive) unreadArgs() (rest []string) {
	for i, a := range d.CmdArgs {
		if !d.readArgs[i] {
			rest = append(rest, a.String())
		}
	}
	return rest
}

// HasArg reports whether the directive has a word or a key.
func (d Directive) HasArg(key string) bool { return d.findArg(key) >= 0 }

// findArg returns the index of a word or a key, or -1.
func (d Directive) findArg(key string) int {
	for i, a := range d.CmdArgs {
		if a.Key == key {
			d.readArgs[i] = true
			return i
		}
	}
	return -1
}

// ScanArgs reads the values of a key. It fails the test if the directive does not have the key.
func (d Directive) ScanArgs(t *testing.T, key string, into ...any) {
	t.Helper()
	d.findArg(key)
	d.TestData.ScanArgs(t, key, into...)
}

// AllArgs returns all words and keys, and marks them as read.
func (d Directive) AllArgs() []datadriven.CmdArg {
	for i := range d.CmdArgs {
		d.readArgs[i] = true
	}
	return d.CmdArgs
}

// FailUnknown fails the test, because the verb is unknown.
func (d Directive) FailUnknown() { d.T.Fatalf("%s: no directive %q", d.Pos, d.Cmd) }

// WordAt returns the i-th word. It fails the test if there are not so many words.
func (d Directive) WordAt(i int) string {
	if i >= len(d.CmdArgs) {
		d.T.Fatalf("%s: %s has %d words, and one more is wanted", d.Pos, d.Cmd, len(d.CmdArgs))
	}
	d.readArgs[i] = true
	return d.CmdArgs[i].Key
}

// FirstNumber returns the first word as a number.
func (d Directive) FirstNumber() int { return int(d.parseNumber(d.WordAt(0))) }

// BareNumbers returns the words that are numbers.
func (d Directive) BareNumbers() (all []int) {
	for i, a := range d.CmdArgs {
		if n, err := strconv.Atoi(a.Key); err == nil {
			d.readArgs[i], all = true, append(all, n)
		}
	}
	return all
}

// Values returns the values of a key, or nil.
func (d Directive) Values(key string) []string {
	if i := d.findArg(key); i >= 0 {
		return d.CmdArgs[i].Vals
	}
	return nil
}

// Value returns the first value of a key, or "".
func (d Directive) Value(key string) string {
	if words := d.Values(key); len(words) > 0 {
		return words[0]
	}
	return ""
}

// UintValues returns the values of a key as numbers.
func (d Directive) UintValues(key string) (all []uint64) {
	for _, v := range d.Values(key) {
		all = append(all, uint64(d.parseNumber(v)))
	}
	return all
}

// IntValue returns the value of a key as a number, or the number otherwise if the directive does not have the key.
func (d Directive) IntValue(key string, otherwise int) int {
	if word := d.Value(key); word != "" {
		return int(d.parseNumber(word))
	}
	return otherwise
}

func (d Directive) parseNumber(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		d.T.Fatalf("%s: %v", d.Pos, err)
	}
	return n
}

// CodeValue returns the code that the key code names, or OK if the directive does not have the key.
func (d Directive) CodeValue() effects.Code {
	name := d.Value("code")
	if name == "" {
		return effects.OK
	}
	code, ok := CodeNamed(name)
	if !ok {
		d.T.Fatalf("%s: no code %q", d.Pos, name)
	}
	return code
}

// CodeNamed returns the code with the given name, which is the inverse of Code.String. It reports false if there is no
// such code.
func CodeNamed(name string) (effects.Code, bool) {
	for c := range effects.Code(effects.CodeCount) {
		if c.String() == name {
			return c, true
		}
	}
	return 0, false
}
