package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Limits on the output for a message that matches no schema of kvferry.
const (
	genericDepthMax = 64
	genericLinesMax = 10_000
	genericTextMax  = 200 // bytes of one string
)

var errGenericBound = errors.New("it is too deep or too long to be shown")

// asMsgpack prints bytes as generic MessagePack, for messages that match no schema of kvferry. If the bytes are not
// valid MessagePack, asMsgpack prints the values before the error and the reason.
func asMsgpack(b []byte) []string {
	g := generic{dec: msgpack.NewDecoder(bytes.NewReader(b)), rest: bytes.NewReader(b)}
	g.dec.Reset(g.rest)
	for g.rest.Len() > 0 {
		if err := g.value("", 0); err != nil {
			g.lines = append(g.lines, fmt.Sprintf("(after %d of %d bytes: %v)", len(b)-g.rest.Len(), len(b), err))
			break
		}
	}
	return g.lines
}

type generic struct {
	dec   *msgpack.Decoder
	rest  *bytes.Reader
	lines []string
}

// value prints the next value after the given name, at the given depth of nesting.
func (g *generic) value(name string, depth int) error {
	if depth > genericDepthMax || len(g.lines) >= genericLinesMax {
		return errGenericBound
	}
	show := func(format string, args ...any) {
		g.lines = append(g.lines, strings.Repeat("  ", depth)+name+fmt.Sprintf(format, args...))
	}
	code, err := g.dec.PeekCode()
	if err != nil {
		return err
	}
	switch {
	case msgpcode.IsFixedMap(code), code == msgpcode.Map16, code == msgpcode.Map32:
		n, err := g.dec.DecodeMapLen()
		if err != nil {
			return err
		}
		show("map of %d", n)
		for range n {
			key, err := g.key()
			if err == nil {
				err = g.value(key+": ", depth+1)
			}
			if err != nil {
				return err
			}
		}
		return nil
	case msgpcode.IsFixedArray(code), code == msgpcode.Array16, code == msgpcode.Array32:
		n, err := g.dec.DecodeArrayLen()
		if err != nil {
			return err
		}
		show("array of %d", n)
		for i := range n {
			if err := g.value(fmt.Sprintf("[%d] ", i), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := g.scalar()
	if err != nil {
		return err
	}
	show("%s", text)
	return nil
}

// key returns the name of a map entry, which usually is a string.
func (g *generic) key() (string, error) {
	code, err := g.dec.PeekCode()
	switch {
	case err != nil:
		return "", err
	case msgpcode.IsFixedMap(code), msgpcode.IsFixedArray(code), code >= msgpcode.Array16 && code <= msgpcode.Map32:
		return "", errors.New("a map has a key that is a map or an array")
	}
	return g.scalar()
}

// scalar returns a value that has no parts. A length beyond the end of the input is refused before memory is allocated.
func (g *generic) scalar() (string, error) {
	raw, err := g.dec.DecodeRaw()
	if err != nil {
		return "", err
	}
	var v any
	if v, err = msgpack.NewDecoder(bytes.NewReader(raw)).DecodeInterface(); err != nil {
		if errors.Is(err, io.EOF) {
			return "", io.ErrUnexpectedEOF
		}
		return fmt.Sprintf("%d bytes % x", len(raw), raw[:min(len(raw), genericTextMax)]), nil // An extension type.
	}
	switch v := v.(type) {
	case string:
		return clippedText("%q", v), nil
	case []byte:
		return fmt.Sprintf("%d bytes ", len(v)) + clippedText("%x", string(v)), nil
	default:
		return fmt.Sprint(v), nil
	}
}

func clippedText(format, s string) string {
	if len(s) > genericTextMax {
		return fmt.Sprintf(format, s[:genericTextMax]) + fmt.Sprintf(" and %d bytes more", len(s)-genericTextMax)
	}
	return fmt.Sprintf(format, s)
}
