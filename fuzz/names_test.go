package fuzz

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

// FuzzKey: a text is a key only if it is the one text of that key.
func FuzzKey(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := protocol.ParseKey(b)
		if check := protocol.CheckKey(b, len(b)); (check == nil) != (err == nil) {
			t.Fatalf("ParseKey: %v, CheckKey: %v", err, check)
		}
		if err != nil {
			var refused *protocol.KeyError
			if !errors.As(err, &refused) || refused.Code == 0 || len(err.Error()) > 1024 {
				t.Fatalf("got %#v", err)
			}
			return
		}
		if got := k.String(); got != string(b) {
			t.Fatalf("%q is written as %q", b, got)
		}
		if err := k.Validate(); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if protocol.CheckKey(b, len(b)-1) == nil {
			t.Fatalf("%q passes a smaller bound", b)
		}
	})
}

// FuzzPullID: a text is a pull id only if it is the one text of that id, as another decoder of hex reads it.
func FuzzPullID(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		id, ok := protocol.ParsePullID(b)
		want, err := hex.DecodeString(string(b))
		if one := err == nil && len(want) == len(id) && hex.EncodeToString(want) == string(b); ok != one {
			t.Fatalf("%q: accepted is %v", b, ok)
		}
		if ok && (id.String() != string(b) || !bytes.Equal(id[:], want)) {
			t.Fatalf("%q is %x, written %s", b, id[:], id)
		}
	})
}

// FuzzEndpoint: likewise, but for leading zeros of the port.
func FuzzEndpoint(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		e, err := protocol.ParseEndpoint(s)
		if err != nil {
			var refused *protocol.EndpointError
			if !errors.As(err, &refused) {
				t.Fatalf("got %#v", err)
			}
			return
		}
		if again, err := protocol.ParseEndpoint(e.String()); err != nil || again != e {
			t.Fatalf("%q is %+v, written %q, read as %+v, %v", s, e, e, again, err)
		}
	})
}
