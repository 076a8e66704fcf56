// Package trace reads request traces: what a serving system was asked over some time, one JSON object
// a line, in the format of the Mooncake traces.
//
//	{"timestamp": 1200, "input_length": 700, "output_length": 42, "hash_ids": [0, 17]}
//
// timestamp is the arrival in milliseconds from the start, never less than the line before;
// input_length and output_length count tokens; hash_ids has one id for each begun block of 512
// prompt tokens, in order, and equal ids stand for equal blocks after equal prefixes. All four
// fields must be there and no other.
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

// BlockTokens is how many prompt tokens one id of hash_ids stands for.
const BlockTokens = 512

// A Request is one line of a trace.
type Request struct {
	Arrival      time.Duration // from the start of the trace
	InputTokens  int           // of the prompt, at least 1
	OutputTokens int           // that were generated
	Blocks       []uint64      // ids of the prompt's blocks; the last may be a part of one
}

// Limits bounds what is read.
type Limits struct {
	// Requests is the most lines that are read; what follows them is not looked at.
	Requests int
	// LineBytes is the longest line.
	LineBytes int
	// InputTokens and OutputTokens are the most of one request.
	InputTokens, OutputTokens int
	// Duration is the latest arrival.
	Duration time.Duration
}

// DefaultLimits returns limits that every published trace keeps: a million requests within a week, of
// a million tokens each.
func DefaultLimits() Limits {
	return Limits{Requests: 1_000_000, LineBytes: 64 << 10, InputTokens: 1 << 20, OutputTokens: 1 << 20,
		Duration: 7 * 24 * time.Hour}
}

// An Error says what is wrong with a trace.
type Error struct {
	File   string // the name given to Read
	Line   int    // from 1
	Field  string // empty where the line as a whole is meant
	Value  string // what was found, shortened
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

// Read reads a trace, of which name stands in messages. Empty lines are skipped. The error is an
// *Error for the first line that is wrong, or what r returned.
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
				Remedy: fmt.Sprintf("the line before arrives at %d; sort the lines", last.Milliseconds())}
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
			&Error{File: name, Line: line + 1, Remedy: "there is no request; give a trace with one JSON object a line"}
	}
	return requests, nil
}

// parseLine reads one object. It goes token by token, because decoding into a struct would let a
// field be given twice, or in other letters.
func parseLine(text []byte, limits Limits) (Request, *Error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var req Request
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return req, &Error{Value: shorten(string(text)), Remedy: "write one JSON object"}
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		field, isName := t.(string)
		if err != nil || !isName {
			return req, notJSON(err)
		}
		if seen[field] {
			return req, &Error{Field: field, Remedy: "given twice; keep one"}
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
		return req, &Error{Remedy: "something follows the object; write one object a line"}
	}
	for _, field := range []string{"timestamp", "input_length", "output_length", "hash_ids"} {
		if !seen[field] {
			return req, &Error{Field: field, Remedy: "it is missing; every line has it"}
		}
	}
	if want := (req.InputTokens + BlockTokens - 1) / BlockTokens; len(req.Blocks) != want {
		return req, &Error{Field: "hash_ids", Value: fmt.Sprintf("%d ids", len(req.Blocks)),
			Remedy: fmt.Sprintf("input_length %d has %d blocks of %d tokens; give one id for each", req.InputTokens, want,
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

func readBlocks(d *json.Decoder, most int) ([]uint64, *Error) {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, &Error{Remedy: "write a list of whole numbers"}
	}
	var blocks []uint64
	for d.More() {
		n, problem := readInt(d, 0, 1<<63-1)
		if problem != nil {
			return nil, problem
		}
		if len(blocks) == most {
			return nil, &Error{Remedy: fmt.Sprintf("more than %d ids; shorten the request or raise the limit", most)}
		}
		blocks = append(blocks, uint64(n))
	}
	if _, err := d.Token(); err != nil {
		return nil, notJSON(err)
	}
	return blocks, nil
}

// readInt reads a whole number from low to high.
func readInt(d *json.Decoder, low, high int64) (int64, *Error) {
	t, err := d.Token()
	if err != nil {
		return 0, notJSON(err)
	}
	number, isNumber := t.(json.Number)
	if !isNumber {
		return 0, &Error{Value: shorten(fmt.Sprint(t)), Remedy: "write a whole number"}
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil || n < low || n > high {
		return 0, &Error{Value: shorten(number.String()), Remedy: fmt.Sprintf("write a whole number from %d to %d", low,
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

func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
