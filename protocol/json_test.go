package protocol

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// inJSON writes a message as a program that knows neither LMCache nor us may write it.
func inJSON(t require, payload []byte) []byte {
	var fields map[string]any
	if err := msgpack.Unmarshal(payload, &fields); err != nil {
		t.Fatalf("%x: %v", payload, err)
	}
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatalf("%x: %v", payload, err)
	}
	return b
}

// require is what tests and properties have in common.
type require interface {
	Fatalf(format string, args ...any)
}

// Every message between a worker and its controller means the same as JSON.
func TestJSONMeansTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := Tag(rapid.IntRange(int(TagRegisterMsg), int(TagAttachRequest)-1).Draw(t, "tag"))
		m := genShare(t, tag)
		if x, ok := m.(*FullSyncStatusRetMsg); ok {
			x.GlobalProgress += 0 // JSON writes -0 as an integer, which has no sign: LMCache's controller reads 0, too.
		}
		b := inJSON(t, m.Append(nil))
		if got, err := PeekControllerTag(b, nil); err != nil || got != tag {
			t.Fatalf("%s: PeekControllerTag finds %v, %v", b, got, err)
		}
		got := NewMessage(tag)
		if err := got.Decode(b, nil); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if text(got) != text(m) {
			t.Fatalf("%s\ngot  %s\nwant %s", b, text(got), text(m))
		}
		if _, err := Describe(b, nil); err != nil {
			t.Fatalf("Describe: %v", err)
		}
	})
}

// Only messages of a controller may be JSON, and only there is it looked for.
func TestJSONIsForControllersAlone(t *testing.T) {
	eachVector(t, func(t *testing.T, m Message, payload []byte) {
		tag, b := tagOf(m), inJSON(t, payload)
		_, err := decode(m, b)
		_, peekErr := PeekControllerTag(b, nil)
		if may := tag.Family() == FamilyController; (err == nil) != may || (peekErr == nil) != may {
			t.Errorf("%s: Decode says %v, PeekControllerTag %v", b, err, peekErr)
		}
		if _, err := PeekTag(b, nil); err == nil || HasTag(b, tag, nil) {
			t.Errorf("PeekTag or HasTag takes %s", b)
		}
		if got, err := PeekControllerTag(payload, nil); err != nil || got != tag {
			t.Errorf("PeekControllerTag finds %v, %v", got, err)
		}
	})
}

// What is said twice, unknown, or oddly written.
func TestJSONForms(t *testing.T) {
	datadriven.RunTest(t, "testdata/json.txt", func(t *testing.T, d *datadriven.TestData) string {
		out, err := Describe([]byte(d.Input), nil)
		if err != nil {
			return out + "error: " + err.Error() + "\n"
		}
		return out
	})
}

// A fault is told where it is in the JSON, also behind fields that were said twice.
func TestFaultsOfJSONHaveTheirPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString(`{"type": "ErrorMsg"`)
		for range rapid.IntRange(0, 30).Draw(t, "fields") {
			b.WriteString(rapid.SampledFrom([]string{
				`, "error": "said before"`, `, "error":["twice", {"a": 1, "a": 2}]`,
				` , "x" : {"y": {"z":[1, -1.5e3, null]}, "y": 7}`,
				`, "x":1`, "\n,\t\"type\": \"Nobody\", \"type\": \"ErrorMsg\"",
			}).Draw(t, "field"))
		}
		b.WriteString(`, "error": `)
		at := b.Len()
		b.WriteString(`true}`)
		err := new(ErrorMsg).Decode([]byte(b.String()), nil)
		var refused *DecodeError
		if !errors.As(err, &refused) || refused.Code != DecodeWrongType || refused.Field != "error" || refused.Offset != at {
			t.Fatalf("%s: %v, want byte %d", b.String(), err, at)
		}
	})
}

// Mutated JSON is accepted or refused as other bytes are, and nothing is accepted that is none.
func TestMutatedJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := Tag(rapid.IntRange(int(TagRegisterMsg), int(TagAttachRequest)-1).Draw(t, "tag"))
		b := inJSON(t, genShare(t, tag).Append(nil))
		for range rapid.IntRange(1, 4).Draw(t, "mutations") {
			b[rapid.IntRange(1, len(b)-1).Draw(t, "at")] = rapid.SampledFrom([]byte(`{}[],:"\0e.-tn `)).Draw(t, "byte")
		}
		m := NewMessage(tag)
		err := m.Decode(b, nil)
		var refused *DecodeError
		if err != nil {
			if !errors.As(err, &refused) || refused.Offset < 0 || refused.Offset > len(b) {
				t.Fatalf("%s: %v", b, err)
			}
			return
		}
		if !json.Valid(b) {
			t.Fatalf("%s is accepted", b)
		}
	})
}

// JSON costs memory in proportion, whatever it is.
func TestHostileJSONAllocatesLittle(t *testing.T) {
	const multiple, fixed = 64, 8 << 10
	for _, inner := range []string{
		strings.Repeat(`{"":0},`, 40_000), strings.Repeat(`[],`, 80_000), strings.Repeat(`0,`, 100_000),
		strings.Repeat(`"",`, 80_000),
		strings.Repeat(`{"a":0,"a":0,"a":0},`, 20_000), strings.Repeat(`[[[[[[0]]]]]],`, 20_000),
		strings.Repeat("[", 200_000),
		strings.Repeat(`1e9,`, 50_000),
	} {
		b := []byte(`{"type": "ErrorMsg", "error": [` + strings.TrimSuffix(inner, ",") + `]}`)
		got := allocated(func() { _ = new(ErrorMsg).Decode(b, nil) })
		if got > multiple*uint64(len(b))+fixed {
			t.Errorf("%d bytes for %d, which begin with %s", got, len(b), b[:60])
		}
		t.Logf("%.1f times for %.20s", float64(got)/float64(len(b)), inner)
	}
}
