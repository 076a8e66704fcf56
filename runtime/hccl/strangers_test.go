//go:build cgo && linux

package hccl_test

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// Silent connections beyond the bound keep no initiator out and end no link. The connection that has waited longest is
// closed first. The channel of an admitted link is not closed, although the channel is silent, too.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	r := hccltest.StartRig(t)
	open := r.NodeMaker(hccltest.Options{Change: func(c *hccl.Config) { c.MaxLinks = 2 }})
	p := &planetest.LeasedPair{A: planetest.OpenLeased(t, open, 1, pages, pageBytes),
		B: planetest.OpenLeased(t, open, 2, pages, pageBytes)}
	first := p.A.Import(t, p.B.Inc, p.B.Plane.Blob())
	for range 2 {
		var longest io.Reader
		for n := range 50 {
			conn := dial(t, p.B)
			t.Cleanup(func() { _ = conn.Close() })
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				longest = conn
			}
		}
		if _, err := longest.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the one that waited longest was kept: %v", err)
		}
	}
	second := p.A.Import(t, p.B.Inc, p.B.Plane.Blob())
	for _, link := range []effects.Link{first, second} {
		p.Link = link
		p.WantWorking(t)
	}
}
