package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// jsonWords are what JSON is made of, and what looks like it.
var jsonWords = []string{
	"{", "}", "[", "]", ",", ":", `"a"`, `"b"`, `""`, `"\u0061"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83d\u0061"`,
	`"\ude00\ud83d"`, `"\"\\\/\b\f\n\r\t"`,
	`"\x"`, `"\u12"`, `"é😀"`, "\"\n\"", "\"\x01\"", "\"\x7f\"", `"\ud83d\ud83d\ude00"`, `"\ude00\ud83d\ude00"`, "00",
	"-01", `"`, "0", "-0", "1", "-1", "01", "1.", "1.5", "-", "1e", "1e5", "1E+5", "1e-5", "1e999", ".5", "+1",
	"9223372036854775807", "-9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775809",
	"true", "false", "null", "nul", "True", "NaN", "Infinity", " ", "\t", "\n", "\r", "\v", "\ufeff", "//", "'a'",
}

// looseJSON is some JSON, or not.
var looseJSON = rapid.Custom(func(t *rapid.T) string {
	var b strings.Builder
	b.WriteString("{")
	for range rapid.IntRange(0, 12).Draw(t, "words") {
		b.WriteString(rapid.SampledFrom(jsonWords).Draw(t, "word"))
	}
	b.WriteString(rapid.SampledFrom([]string{"}", "", "}}", "]}", "} "}).Draw(t, "end"))
	return b.String()
})

// validJSON is an object.
var validJSON = rapid.Custom(func(t *rapid.T) string { return drawObject(t, 5) })

func drawObject(t *rapid.T, depth int) string {
	var fields []string
	for range rapid.IntRange(0, 6).Draw(t, "fields") {
		name := rapid.SampledFrom([]string{`"a"`, `"\u0061"`, ` "b" `, `"c"`, `"\ud83d\ude00"`, `"😀"`, `""`}).Draw(t, "name")
		fields = append(fields, name+":"+drawJSON(t, depth-1))
	}
	return "{" + strings.Join(fields, rapid.SampledFrom([]string{",", " ,\n"}).Draw(t, "comma")) + "}"
}

func drawJSON(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	switch {
	case kind < 2 && depth > 0:
		return drawObject(t, depth)
	case kind < 4 && depth > 0:
		var elements []string
		for range rapid.IntRange(0, 6).Draw(t, "elements") {
			elements = append(elements, drawJSON(t, depth-1))
		}
		return "[" + strings.Join(elements, ",") + "]"
	default:
		return rapid.SampledFrom([]string{
			"0", "-0", "7", "-42", "1.5", "-1.5e-3", "1E5", "9223372036854775807", "-9223372036854775808",
			"18446744073709551615",
			"true", "false", "null", `""`, `"text"`, `"\u00e9\n\ud83d\ude00"`, `"\ud83d"`, `"\ude00x"`,
		}).Draw(t, "value")
	}
}

// Another reader of JSON takes what ours takes, and reads the same; what ours refuses, so does the other.
func TestAnotherReaderOfJSONReadsTheSame(t *testing.T) {
	for _, word := range jsonWords {
		for _, s := range []string{`{"x":` + word + `}`, `{"x":[` + word + `,1]}`, `{` + word + `:1}`, word + `{}`} {
			sameJSON(t, s)
		}
	}
	rapid.Check(t, func(t *rapid.T) { sameJSON(t, rapid.OneOf(looseJSON, validJSON).Draw(t, "json")) })
}

func sameJSON(t require, s string) {
	if !isJSON([]byte(s)) {
		return // Nobody asks for it.
	}
	r, _ := newEitherReader([]byte(s), nil)
	if (r.err == nil) != json.Valid([]byte(s)) {
		t.Fatalf("%q: we say %v, the other %v", s, r.err, json.Valid([]byte(s)))
	}
	if r.err != nil {
		return
	}
	var theirs, ours map[string]any
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if err := d.Decode(&theirs); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	if err := msgpack.Unmarshal(r.b, &ours); err != nil {
		t.Fatalf("%q is made into %x: %v", s, r.b, err)
	}
	if got, want := fmt.Sprint(plainNumbers(ours)), fmt.Sprint(plainNumbers(theirs)); got != want {
		t.Fatalf("%q is %s, and to the other %s", s, got, want)
	}
}

// Every object has as many fields at most as a map that is declared, those that are skipped as well: each name is
// compared with all before it.
func TestFieldsOfAnObjectAreBounded(t *testing.T) {
	inner := `"y": 0`
	for i := range defaultLimits.MapLen - 1 {
		inner += fmt.Sprintf(`, "x%d": 0`, i)
	}
	message := func(inner string) []byte {
		return []byte(`{"type": "ErrorMsg", "error": "x", "later": {` + inner + `}}`)
	}
	if err := new(ErrorMsg).Decode(message(inner), nil); err != nil {
		t.Error(err)
	}
	var refused *DecodeError
	err := new(ErrorMsg).Decode(message(inner+`, "y": 0`), nil)
	if !errors.As(err, &refused) || refused.Code != DecodeMapTooLong {
		t.Errorf("one more: %v", err)
	}
}

// plainNumbers makes numbers of all types one.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			f = math.Inf(1)
		}
		return fmt.Sprint("float ", f)
	case float64:
		return fmt.Sprint("float ", v)
	case map[string]any:
		for name := range v {
			v[name] = plainNumbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	}
	return v
}
