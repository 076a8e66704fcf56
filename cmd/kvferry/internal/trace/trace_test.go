package trace

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func read(text string) ([]Request, error) {
	limits := DefaultLimits()
	limits.LineBytes = 256
	return Read("t.jsonl", strings.NewReader(text), limits)
}

func TestRead(t *testing.T) {
	got, err := read(`{"timestamp": 0, "input_length": 513, "output_length": 4, "hash_ids": [0, 7]}

{"hash_ids":[9223372036854775807],"output_length":0,"input_length":512,"timestamp":27000}`)
	want := []Request{
		{0, 513, 4, []uint64{0, 7}},
		{27 * time.Second, 512, 0, []uint64{1<<63 - 1}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
}

func TestReadStopsAfterEnough(t *testing.T) {
	limits := DefaultLimits()
	limits.Requests = 1
	got, err := Read("t.jsonl", strings.NewReader(line(0, "")+"\nnot looked at"), limits)
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
}

// line returns a valid request with an additional pair of name and value.
func line(at int, more string) string {
	return `{"timestamp": ` + string(rune('0'+at)) + `, "input_length": 1, "output_length": 1, "hash_ids": [0]` + more +
		`}`
}

func TestProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "t.jsonl:1: there is no request; give a trace with one JSON object a line"},
		{line(1, "") + "\n" + line(0, ""), `t.jsonl:2: timestamp: "0": the line before arrives at 1; sort the lines`},
		{line(0, `, "timestamp": 0`), "t.jsonl:1: timestamp: given twice; keep one"},
		{line(0, `, "Timestamp": 0`),
			"t.jsonl:1: Timestamp: unknown field; keep timestamp, input_length, output_length and hash_ids"},
		{line(0, "") + line(0, ""), "t.jsonl:1: something follows the object; write one object a line"},
		{"[1]", `t.jsonl:1: "[1]": write one JSON object`},
		{`{"timestamp": 0`, "t.jsonl:1: the object is cut off; write one whole JSON object"},
		{`{"timestamp": 0 "`,
			"t.jsonl:1: this is not JSON (invalid character '\"' after object key:value pair); write one JSON object"},
		{`{"timestamp": `, "t.jsonl:1: timestamp: the object is cut off; write one whole JSON object"},
		{`{"timestamp": "0"}`, `t.jsonl:1: timestamp: "0": write a whole number`},
		{`{"timestamp": 1.5}`, `t.jsonl:1: timestamp: "1.5": write a whole number from 0 to 604800000`},
		{`{"timestamp": -1}`, `t.jsonl:1: timestamp: "-1": write a whole number from 0 to 604800000`},
		{`{"input_length": 0}`, `t.jsonl:1: input_length: "0": write a whole number from 1 to 1048576`},
		{`{"output_length": 99999999999999999999}`,
			`t.jsonl:1: output_length: "99999999999999999999": write a whole number from 0 to 1048576`},
		{`{"hash_ids": 0}`, "t.jsonl:1: hash_ids: write a list of whole numbers"},
		{`{"hash_ids": [0, null]}`, `t.jsonl:1: hash_ids: "<nil>": write a whole number`},
		{`{"timestamp": 0, "input_length": 1, "output_length": 1}`, "t.jsonl:1: hash_ids: it is missing; every line has it"},
		{`{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [0]}`,
			`t.jsonl:1: hash_ids: "1 ids": input_length 513 has 2 blocks of 512 tokens; give one id for each`},
		{line(0, "") + "\n" + strings.Repeat(" ", 300),
			"t.jsonl:2: the line is longer than 256 bytes; split the request or raise the limit"},
	} {
		_, err := read(c.text)
		var e *Error
		if !errors.As(err, &e) || err.Error() != c.want {
			t.Errorf("%s\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestBlocksAreBounded(t *testing.T) {
	limits := DefaultLimits()
	limits.InputTokens = 1024
	_, err := Read("t.jsonl", strings.NewReader(`{"hash_ids": [1, 2, 3]}`), limits)
	if err == nil || !strings.Contains(err.Error(), "more than 2 ids") {
		t.Errorf("got %v", err)
	}
}

func TestPublishedTrace(t *testing.T) {
	const file = "../../../../../shared/traces/conversation_trace.jsonl"
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the published trace is not beside the project, at ../shared/traces")
	} else if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	requests, err := Read(file, f, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) != 12_031 {
		t.Errorf("got %d requests", len(requests))
	}
}
