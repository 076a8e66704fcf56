// Package trace reads request traces. A trace lists the requests that a serving system received over some time, with
// one JSON object per line, in the format of the Mooncake traces. The demo replays traces. For example, this line is a
// request of 700 prompt tokens, and so of two blocks, that arrived after 1.2 seconds:
//
//	{"timestamp": 1200, "input_length": 700, "output_length": 42, "hash_ids": [0, 17]}
//
// The timestamp is the arrival in milliseconds from the start of the trace, and is never less than the timestamp of the
// line before. The fields input_length and output_length count tokens. The field hash_ids has one id for each full or
// partial block of 512 prompt tokens, in order; equal ids stand for equal blocks after equal prefixes. All four fields
// are required, and no other field is allowed.
package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// BlockTokens is the number of prompt tokens in the block that one id of hash_ids names.
const BlockTokens = 512

// A Request is one line of a trace.
type Request struct {
	Arrival      time.Duration // from the start of the trace
	InputTokens  int           // number of prompt tokens, at least 1
	OutputTokens int           // number of generated tokens
	Blocks       []uint64      // ids of the prompt's blocks; the last block may be partial
}

// Limits bounds what Read accepts.
type Limits struct {
	// Requests is the maximum number of requests that Read reads. Read ignores the lines that follow.
	Requests int
	// LineBytes is the maximum length of a line in bytes.
	LineBytes int
	// InputTokens and OutputTokens are the maximum token counts of one request.
	InputTokens, OutputTokens int
	// Duration is the latest arrival, from the start of the trace.
	Duration time.Duration
}

// DefaultLimits returns limits that every published trace satisfies: a million requests within a week, of a million
// tokens each.
func DefaultLimits() Limits {
	return Limits{Requests: 1_000_000, LineBytes: 64 << 10, InputTokens: 1 << 20, OutputTokens: 1 << 20,
		Duration: 7 * 24 * time.Hour}
}

// An Error describes a malformed line of a trace.
type Error struct {
	File   string // the name given to Read
	Line   int    // from 1
	Field  string // empty if the error concerns the line as a whole
	Value  string // the value found, shortened
	Remedy string
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	if e.Value != "" {
		fmt.Fprintf(&b, "%q: ", e.Value)
	}
	b.WriteString(e.Remedy)
	return b.String()
}

// Read reads a trace. Error messages give the trace's name. Read skips empty lines. It fails with an *Error about the
// first malformed line, or with an error that wraps the error of r. A trace without requests is an error as well.
func Read(name string, r io.Reader, limits Limits) ([]Request, error) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, limits.LineBytes)
	var requests []Request
	var last time.Duration
	line := 0
	for len(requests) < limits.Requests && scanner.Scan() {
		line++
		text := bytes.TrimSpace(scanner.Bytes())
		if len(text) == 0 {
			continue
		}
		req, problem := parseLine(text, limits)
		if problem == nil && req.Arrival < last {
			problem = &Error{Field: "timestamp", Value: strconv.FormatInt(req.Arrival.Milliseconds(), 10),
				Remedy: fmt.Sprintf("the previous line has timestamp %d; sort the lines", last.Milliseconds())}
		}
		if problem != nil {
			problem.File, problem.Line = name, line
			return nil, problem
		}
		last = req.Arrival
		requests = append(requests, req)
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil,
			&Error{File: name, Line: line + 1,
				Remedy: fmt.Sprintf("the line is longer than %d bytes; split the request or raise the limit", limits.LineBytes)}
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(requests) == 0 && limits.Requests > 0 {
		return nil,
			&Error{File: name, Line: line + 1, Remedy: "the trace has no requests; give a trace with one JSON object per line"}
	}
	return requests, nil
}

// parseLine reads one object. It reads token by token, because decoding into a struct would accept a field that is
// given twice, or whose name has other letter case.
func parseLine(text []byte, limits Limits) (Request, *Error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var req Request
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return req, &Error{Value: shortenValue(string(text)), Remedy: "write one JSON object"}
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		field, isName := t.(string)
		if err != nil || !isName {
			return req, notJSON(err)
		}
		if seen[field] {
			return req, &Error{Field: field, Remedy: "the field is given twice; remove one"}
		}
		seen[field] = true
		if problem := req.readField(d, field, limits); problem != nil {
			problem.Field = field
			return req, problem
		}
	}
	if _, err := d.Token(); err != nil {
		return req, notJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return req, &Error{Remedy: "there is text after the object; write one object per line"}
	}
	for _, field := range []string{"timestamp", "input_length", "output_length", "hash_ids"} {
		if !seen[field] {
			return req, &Error{Field: field, Remedy: "the field is missing; every line needs it"}
		}
	}
	if want := (req.InputTokens + BlockTokens - 1) / BlockTokens; len(req.Blocks) != want {
		return req, &Error{Field: "hash_ids", Value: fmt.Sprintf("%d ids", len(req.Blocks)),
			Remedy: fmt.Sprintf("an input_length of %d has %d blocks of %d tokens; give one ID for each block", req.InputTokens, want,
				BlockTokens)}
	}
	return req, nil
}

func (req *Request) readField(d *json.Decoder, field string, limits Limits) *Error {
	switch field {
	case "timestamp":
		n, problem := readInt(d, 0, limits.Duration.Milliseconds())
		req.Arrival = time.Duration(n) * time.Millisecond
		return problem
	case "input_length":
		n, problem := readInt(d, 1, int64(limits.InputTokens))
		req.InputTokens = int(n)
		return problem
	case "output_length":
		n, problem := readInt(d, 0, int64(limits.OutputTokens))
		req.OutputTokens = int(n)
		return problem
	case "hash_ids":
		blocks, problem := readBlocks(d, (limits.InputTokens+BlockTokens-1)/BlockTokens)
		req.Blocks = blocks
		return problem
	default:
		return &Error{Remedy: "unknown field; keep timestamp, input_length, output_length and hash_ids"}
	}
}

func readBlocks(d *json.Decoder, maxBlocks int) ([]uint64, *Error) {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, &Error{Remedy: "write a list of whole numbers"}
	}
	var blocks []uint64
	for d.More() {
		n, problem := readInt(d, 0, 1<<63-1)
		if problem != nil {
			return nil, problem
		}
		if len(blocks) == maxBlocks {
			return nil, &Error{Remedy: fmt.Sprintf("more than %d ids; shorten the request or raise the limit", maxBlocks)}
		}
		blocks = append(blocks, uint64(n))
	}
	if _, err := d.Token(); err != nil {
		return nil, notJSON(err)
	}
	return blocks, nil
}

// readInt reads a whole number. It fails if the number is not between low and high, both included.
func readInt(d *json.Decoder, low, high int64) (int64, *Error) {
	t, err := d.Token()
	if err != nil {
		return 0, notJSON(err)
	}
	number, isNumber := t.(json.Number)
	if !isNumber {
		return 0, &Error{Value: shortenValue(fmt.Sprint(t)), Remedy: "write a whole number"}
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil || n < low || n > high {
		return 0, &Error{Value: shortenValue(number.String()), Remedy: fmt.Sprintf("write a whole number from %d to %d", low,
			high)}
	}
	return n, nil
}

func notJSON(err error) *Error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Remedy: "the object is cut off; write one whole JSON object"}
	}
	return &Error{Remedy: fmt.Sprintf("this is not JSON (%v); write one JSON object", err)}
}

func shortenValue(s string) string {
	const maxBytes = 64
	if len(s) <= maxBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxBytes], "") + "..."
}
