// Package transcript plays transcripts: stories of a machine, in files below its testdata, whose directives are played
// again and whose outputs are compared (github.com/cockroachdb/datadriven, with -rewrite to accept what is new). It
// reads what directives have alike; what they mean, each test says.
package transcript

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvferry/kvferry/effects"
)

// A Directive is one line of a story: a verb (Cmd), then words and keys with values (CmdArgs), and lines of input. What
// cannot be read ends the test, and so does what nobody has read: it may be misspelt.
type Directive struct {
	*datadriven.TestData
	T *testing.T

	read map[int]bool // places among CmdArgs
}

// Play plays all files below a folder. begin is called for each, and returns what plays its directives.
func Play(t *testing.T, folder string, begin func() (play func(Directive) string)) {
	datadriven.Walk(t, folder, func(t *testing.T, path string) {
		if filepath.Ext(path) == ".fail" {
			return // What a property test left that failed.
		}
		play := begin()
		datadriven.RunTest(t, path, func(t *testing.T, data *datadriven.TestData) string {
			d := Directive{data, t, map[int]bool{}}
			out := play(d)
			if rest := d.unread(); len(rest) > 0 {
				t.Fatalf("%s: %s does not read %v: take it out, or spell it as it is read", d.Pos, d.Cmd, rest)
			}
			return out
		})
	})
}

// unread are the words and keys that nobody has read.
func (d Directive) unread() (rest []string) {
	for i, a := range d.CmdArgs {
		if !d.read[i] {
			rest = append(rest, a.String())
		}
	}
	return rest
}

// HasArg says whether a word or a key is there.
func (d Directive) HasArg(key string) bool { return d.find(key) >= 0 }

// find is the place of a word or a key; negative if it is not there.
func (d Directive) find(key string) int {
	for i, a := range d.CmdArgs {
		if a.Key == key {
			d.read[i] = true
			return i
		}
	}
	return -1
}

// ScanArgs reads the values of a key, which must be there.
func (d Directive) ScanArgs(t *testing.T, key string, into ...any) {
	t.Helper()
	d.find(key)
	d.TestData.ScanArgs(t, key, into...)
}

// Args are all words and keys.
func (d Directive) Args() []datadriven.CmdArg {
	for i := range d.CmdArgs {
		d.read[i] = true
	}
	return d.CmdArgs
}

// Unknown ends the test: nobody plays this verb.
func (d Directive) Unknown() { d.T.Fatalf("%s: no directive %q", d.Pos, d.Cmd) }

// Arg is the i-th word.
func (d Directive) Arg(i int) string {
	if i >= len(d.CmdArgs) {
		d.T.Fatalf("%s: %s has %d words, and one more is wanted", d.Pos, d.Cmd, len(d.CmdArgs))
	}
	d.read[i] = true
	return d.CmdArgs[i].Key
}

// First is the first word as a number.
func (d Directive) First() int { return int(d.number(d.Arg(0))) }

// Numbers are those words that are numbers.
func (d Directive) Numbers() (all []int) {
	for i, a := range d.CmdArgs {
		if n, err := strconv.Atoi(a.Key); err == nil {
			d.read[i], all = true, append(all, n)
		}
	}
	return all
}

// Words are the values of a key.
func (d Directive) Words(key string) []string {
	if i := d.find(key); i >= 0 {
		return d.CmdArgs[i].Vals
	}
	return nil
}

// Word is the first value of a key; "" if there is none.
func (d Directive) Word(key string) string {
	if words := d.Words(key); len(words) > 0 {
		return words[0]
	}
	return ""
}

// List are the values of a key as numbers.
func (d Directive) List(key string) (all []uint64) {
	for _, v := range d.Words(key) {
		all = append(all, uint64(d.number(v)))
	}
	return all
}

// Number is the value of a key; otherwise if there is none.
func (d Directive) Number(key string, otherwise int) int {
	if word := d.Word(key); word != "" {
		return int(d.number(word))
	}
	return otherwise
}

func (d Directive) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		d.T.Fatalf("%s: %v", d.Pos, err)
	}
	return n
}

// Code is that which the key code names; OK if there is none.
func (d Directive) Code() effects.Code {
	name := d.Word("code")
	if name == "" {
		return effects.OK
	}
	code, ok := CodeNamed(name)
	if !ok {
		d.T.Fatalf("%s: no code %q", d.Pos, name)
	}
	return code
}

// CodeNamed is the opposite of a code's String; false if none has that name.
func CodeNamed(name string) (effects.Code, bool) {
	for c := range effects.Code(effects.CodeCount) {
		if c.String() == name {
			return c, true
		}
	}
	return 0, false
}
