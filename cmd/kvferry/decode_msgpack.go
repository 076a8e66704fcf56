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

var errTooLarge = errors.New("the message is nested too deeply or is too long to be shown")

// formatMsgpack prints bytes as generic MessagePack, for messages that match no schema of kvferry. If the bytes are not
// valid MessagePack, formatMsgpack prints the values before the error and the reason.
func formatMsgpack(b []byte) []string {
	g := msgpackPrinter{dec: msgpack.NewDecoder(bytes.NewReader(b)), unread: bytes.NewReader(b)}
	g.dec.Reset(g.unread)
	for g.unread.Len() > 0 {
		if err := g.printValue("", 0); err != nil {
			g.lines = append(g.lines, fmt.Sprintf("(after %d of %d bytes: %v)", len(b)-g.unread.Len(), len(b), err))
			break
		}
	}
	return g.lines
}

type msgpackPrinter struct {
	dec    *msgpack.Decoder
	unread *bytes.Reader
	lines  []string
}

// printValue prints the next value after the given name, at the given depth of nesting.
func (g *msgpackPrinter) printValue(name string, depth int) error {
	if depth > genericDepthMax || len(g.lines) >= genericLinesMax {
		return errTooLarge
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
			key, err := g.readKey()
			if err == nil {
				err = g.printValue(key+": ", depth+1)
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
			if err := g.printValue(fmt.Sprintf("[%d] ", i), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := g.readScalar()
	if err != nil {
		return err
	}
	show("%s", text)
	return nil
}

// readKey returns the name of a map entry, which usually is a string.
func (g *msgpackPrinter) readKey() (string, error) {
	code, err := g.dec.PeekCode()
	switch {
	case err != nil:
		return "", err
	case msgpcode.IsFixedMap(code), msgpcode.IsFixedArray(code), code >= msgpcode.Array16 && code <= msgpcode.Map32:
		return "", errors.New("a map has a key that is a map or an array")
	}
	return g.readScalar()
}

// readScalar returns a value that has no parts. A length beyond the end of the input is refused before memory is
// allocated.
func (g *msgpackPrinter) readScalar() (string, error) {
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
		return clipText("%q", v), nil
	case []byte:
		return fmt.Sprintf("%d bytes ", len(v)) + clipText("%x", string(v)), nil
	default:
		return fmt.Sprint(v), nil
	}
}

func clipText(format, s string) string {
	if len(s) > genericTextMax {
		return fmt.Sprintf(format, s[:genericTextMax]) + fmt.Sprintf(" and %d bytes more", len(s)-genericTextMax)
	}
	return fmt.Sprintf(format, s)
}
