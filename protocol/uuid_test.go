package protocol

import (
	"testing"

	"github.com/google/uuid"
)

// Every byte in every place of a UUID's text is read as the library reads it, or refused, and written as the library
// writes it.
func TestUUIDText(t *testing.T) {
	const text = "0f1c2d3e-4a5b-6c7d-8e9f-0011aabbccff"
	for at := range text {
		for c := range 256 {
			b := []byte(text)
			b[at] = byte(c)
			want, err := uuid.Parse(string(b))
			got, ok := parseUUID(b)
			if ok != (err == nil) || ok && got != UUID(want) {
				t.Fatalf("%q is read as %v, %v; want %v, %v", b, got, ok, want, err)
			}
			if ok && (string(appendUUID(nil, got)[2:]) != want.String() || got.String() != want.String()) {
				t.Fatalf("%v is written as %q and %v", want, appendUUID(nil, got), got)
			}
		}
	}
}
