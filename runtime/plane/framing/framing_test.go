package framing

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/kvferry/kvferry/identity"
)

func TestBlobs(t *testing.T) {
	token := identity.Token{7, 15: 9}
	good := append(AppendBlob(nil, "host:1"), token[:]...)
	if got, address, err := ParseBlob(good); err != nil || got != token || address != "host:1" {
		t.Fatalf("%x %q %v", got, address, err)
	}
	long := append(AppendBlob(nil, string(make([]byte, MaxAddressBytes+1))), token[:]...)
	for _, bad := range [][]byte{nil, good[:18], good[:len(good)-1], append(bytes.Clone(good), 0), long,
		append([]byte{1}, good[1:]...)} {
		if _, _, err := ParseBlob(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("blob %x: %v", bad, err)
		}
	}
}

func TestFrames(t *testing.T) {
	frame := append(AppendHeader(nil, 9, 3), 1, 2, 3)
	kind, body, _, err := ReadFrame(bytes.NewReader(frame), nil, len(frame))
	if err != nil || kind != 9 || !bytes.Equal(body, []byte{1, 2, 3}) {
		t.Fatalf("kind %d, body %x, %v", kind, body, err)
	}
	if _, _, _, err := ReadFrame(bytes.NewReader(frame), nil, len(frame)-1); !errors.Is(err, ErrMalformed) {
		t.Errorf("beyond the limit: %v", err)
	}
	if _, _, _, err := ReadFrame(bytes.NewReader(make([]byte, HeaderBytes)), nil, 100); !errors.Is(err, ErrMalformed) {
		t.Errorf("without a kind: %v", err)
	}
	for n := range frame {
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if _, _, _, err := ReadFrame(bytes.NewReader(frame[:n]), nil, 100); !errors.Is(err, want) {
			t.Errorf("%d of %d bytes: %v", n, len(frame), err)
		}
	}
}
