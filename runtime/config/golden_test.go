package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestProblems runs testdata/problems.txt, testdata/pull.txt and testdata/npu.txt: a base file with lines added,
// changed or removed,
// and everything that is then wrong with it, or else its notes.
func TestProblems(t *testing.T) {
	for _, file := range []string{"problems.txt", "pull.txt", "npu.txt"} {
		datadriven.RunTest(t, "testdata/"+file, func(t *testing.T, td *datadriven.TestData) string {
			text := baseText(t, td)
			for _, arg := range td.CmdArgs {
				if arg.Key != "without" {
					td.Fatalf(t, "unknown argument %q", arg.Key)
				}
				for _, key := range arg.Vals {
					text = without(text, key)
				}
			}
			c, err := Parse("node.yaml", []byte(strings.TrimPrefix(text, "\n")+td.Input+"\n"), nil)
			if err == nil {
				return "ok\n" + lines(c.Notes)
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%T: %v", err, err)
			}
			return lines(e.Problems)
		})
	}
}

// baseText is the file that a directive begins with: receiver and sender add to one that is right.
func baseText(t *testing.T, td *datadriven.TestData) string {
	switch td.Cmd {
	case "receiver":
		return receiverYAML
	case "sender":
		return senderYAML
	case "file": // The whole of it.
		return ""
	default:
		td.Fatalf(t, "unknown command %q", td.Cmd)
		return ""
	}
}

func lines(problems []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		if p.Code != Note { // Its text says so.
			b.WriteString(p.Code.String() + " ")
		}
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

// TestCompare runs testdata/compare.txt: keys of a sender, a line ---, keys of a receiver. They replace those of
// two files that go together. What is said must be said in both orders, of whichever file comes second.
func TestCompare(t *testing.T) {
	datadriven.RunTest(t, "testdata/compare.txt", func(t *testing.T, td *datadriven.TestData) string {
		ofSender, ofReceiver, two := strings.Cut(td.Input+"\n", "---\n")
		if td.Cmd != "compare" || !two {
			td.Fatalf(t, "write compare, and a sender's and a receiver's keys with a line --- between them")
		}
		sender := mustParse(t, replaced(senderYAML, ofSender))
		receiver := mustParse(t, replaced(receiverYAML, ofReceiver))
		sender.Name, receiver.Name = "sender.yaml", "receiver.yaml"
		forth, back := Compare(sender, receiver), Compare(receiver, sender)
		if len(forth) != len(back) {
			t.Errorf("%d problems one way and %d the other:\n%s\n%s", len(forth), len(back), lines(forth), lines(back))
		}
		for _, p := range append(forth, back...) {
			if p.Code != Disagree || p.Remedy == "" || p.Field == "" {
				t.Errorf("got %+v", p)
			}
		}
		if len(forth) == 0 {
			return "ok\n"
		}
		return lines(forth) + lines(back)
	})
}

func TestCompareOfOneRole(t *testing.T) {
	a, b := mustParse(t, senderYAML), mustParse(t, senderYAML)
	if problems := Compare(a, b); len(problems) != 1 || problems[0].Field != "pd_role" {
		t.Errorf("two senders: got %v", problems)
	}
}

// replaced is text with each of its keys that more has too taken from more.
func replaced(text, more string) string {
	for line := range strings.Lines(more) {
		if key, _, isKey := strings.Cut(line, ":"); isKey && !strings.HasPrefix(line, " ") {
			text = without(text, key)
		}
	}
	return text + more
}

// without drops the line of a key, and what is indented below it.
func without(text, key string) string {
	var kept []string
	dropping := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, key+":") {
			dropping = true
			continue
		}
		if dropping = dropping && strings.HasPrefix(line, " "); !dropping {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
