package framing

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestBlobs(t *testing.T) {
	good := AppendBlob(nil, Token{7}, "host:1")
	if token, address, err := ParseBlob(good); err != nil || token != (Token{7}) || address != "host:1" {
		t.Fatalf("%x %q %v", token, address, err)
	}
	long := AppendBlob(nil, Token{}, string(make([]byte, AddressMax+1)))
	for _, bad := range [][]byte{nil, good[:18], good[:len(good)-1], append(bytes.Clone(good), 0), long} {
		if _, _, err := ParseBlob(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("blob %x: %v", bad, err)
		}
	}
}

func TestFrames(t *testing.T) {
	frame := append(Begin(nil, 9, 3), 1, 2, 3)
	kind, body, _, err := Read(bytes.NewReader(frame), nil, len(frame))
	if err != nil || kind != 9 || !bytes.Equal(body, []byte{1, 2, 3}) {
		t.Fatalf("kind %d, body %x, %v", kind, body, err)
	}
	if _, _, _, err := Read(bytes.NewReader(frame), nil, len(frame)-1); !errors.Is(err, ErrMalformed) {
		t.Errorf("beyond the limit: %v", err)
	}
	if _, _, _, err := Read(bytes.NewReader(make([]byte, HeadBytes)), nil, 100); !errors.Is(err, ErrMalformed) {
		t.Errorf("without a kind: %v", err)
	}
	for n := range frame {
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if _, _, _, err := Read(bytes.NewReader(frame[:n]), nil, 100); !errors.Is(err, want) {
			t.Errorf("%d of %d bytes: %v", n, len(frame), err)
		}
	}
}
