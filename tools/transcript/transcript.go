// Package transcript plays transcripts: stories of a machine, in files below its testdata, whose directives are played
// again and whose outputs are compared (github.com/cockroachdb/datadriven, with -rewrite to accept what is new). It
// reads what directives have alike; what they mean, each test says.
package transcript

import (
	"strconv"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvferry/kvferry/effects"
)

// A Directive is one line of a story: a verb (Cmd), then words and keys with values (CmdArgs), and lines of input. What
// cannot be read ends the test.
type Directive struct {
	*datadriven.TestData
	T *testing.T
}

// Play plays all files below a folder. begin is called for each, and returns what plays its directives.
func Play(t *testing.T, folder string, begin func() (play func(Directive) string)) {
	datadriven.Walk(t, folder, func(t *testing.T, path string) {
		play := begin()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return play(Directive{d, t}) })
	})
}

// Unknown ends the test: nobody plays this verb.
func (d Directive) Unknown() { d.T.Fatalf("%s: no directive %q", d.Pos, d.Cmd) }

// Arg is the i-th word.
func (d Directive) Arg(i int) string {
	if i >= len(d.CmdArgs) {
		d.T.Fatalf("%s: %s has %d words, and one more is wanted", d.Pos, d.Cmd, len(d.CmdArgs))
	}
	return d.CmdArgs[i].Key
}

// First is the first word as a number.
func (d Directive) First() int { return int(d.number(d.Arg(0))) }

// Numbers are those words that are numbers.
func (d Directive) Numbers() (all []int) {
	for _, a := range d.CmdArgs {
		if n, err := strconv.Atoi(a.Key); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// Words are the values of a key.
func (d Directive) Words(key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
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
