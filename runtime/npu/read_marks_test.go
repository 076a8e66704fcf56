//go:build cgo && linux

package npu

import (
	"context"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A reader reads pages on a separate stream, as planes do, by uploading the content.
type reader struct {
	p      *nodeMemory
	stream *acl.Stream
	from   *acl.Memory
}

func newReader(t testing.TB, p *nodeMemory) *reader {
	t.Helper()
	r := &reader{p: p}
	if err := p.device.context.Do(func(t *acl.Thread) (err error) {
		if r.stream, err = t.NewStream(acl.StreamOptions{}); err != nil {
			return err
		}
		r.from, err = t.AllocHost(testPageBytes)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.device.context.Do(func(t *acl.Thread) error {
			if err := r.stream.Close(t); err != nil {
				return err
			}
			return r.from.Close(t)
		}); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (p *nodeMemory) pageRegions(page effects.Page) []plane.Region {
	return []plane.Region{{Base: p.PageAddress(page), Bytes: uint64(page.Length)}}
}

// readPage reads a page and waits for the read.
func (r *reader) readPage(t testing.TB, page effects.Page, content []byte) {
	t.Helper()
	copy(r.from.Bytes(), content)
	ended := make(chan error, 1)
	if err := r.p.device.context.Do(func(t *acl.Thread) error {
		if err := r.stream.Copy(t, r.p.pageRange(page), r.from.Range(0, uint64(page.Length))); err != nil {
			return err
		}
		if err := r.p.device.RecordRead(t, r.stream, r.p.pageRegions(page)); err != nil {
			return err
		}
		return r.stream.Notify(t, func(err error) { ended <- err })
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// The stream of a scatter waits only for the reads that filled its pages, with many more reads than marks, and with
// events of both styles.
func TestScattersWaitForReads(t *testing.T) {
	for age, hidden := range map[string][]string{"new": nil, "old": olderSymbols} {
		t.Run(age, func(t *testing.T) {
			r := newRig(t, hidden...)
			p, k := scatterRig(t, r, Options{}, false)
			reader, scatter := newReader(t, p), p.device.ScatterFunc(k.enqueue)
			page := effects.Page{Index: 1, Length: testPageBytes}
			if err := scatter(t.Context(), 0, p.devicePages(page)); err != nil {
				t.Fatal(err)
			}
			if n := r.countStreamWaits(); n != 0 {
				t.Errorf("%d waits for pages that nobody read", n)
			}
			const rounds = marksMax + 10
			for i := range uint32(rounds) {
				page := effects.Page{Index: i % 2, Length: testPageBytes}
				reader.readPage(t, page, pattern(testPageBytes, 100+i))
				before := r.countStreamWaits()
				if err := scatter(t.Context(), 0, p.devicePages(page)); err != nil {
					t.Fatal(err)
				}
				k.wantChunk(t, p.device, 0, pattern(testPageBytes, 100+i))
				if r.countStreamWaits() == before {
					t.Fatalf("read %d was not waited for", i)
				}
			}
			if n := len(p.marks.marks); n != marksMax {
				t.Errorf("there are %d marks", n)
			}
			before := r.countStreamWaits()
			if err := scatter(t.Context(), 0, p.devicePages(effects.Page{Index: 7, Length: 1})); err != nil {
				t.Fatal(err)
			}
			if r.countStreamWaits() != before {
				t.Error("a page that nobody read was waited for")
			}
		})
	}
}

func (r *rig) countStreamWaits() int64 {
	r.t.Helper()
	stats, err := r.npu.Stats()
	if err != nil {
		r.t.Fatal(err)
	}
	return stats["calls.aclrtStreamWaitEvent"]
}

// A read that was given up is not waited for: the wait would never end.
func TestScattersDoNotWaitForReadsThatWereGivenUp(t *testing.T) {
	r := newRig(t)
	p, k := scatterRig(t, r, Options{StuckAfter: longEnough}, false)
	reader, page := newReader(t, p), effects.Page{Index: 4, Length: testPageBytes}
	r.runCommand("faults done:of=copy,hang=1")
	if err := p.device.context.Do(func(t *acl.Thread) error {
		if err := reader.stream.Copy(t, p.pageRange(page), reader.from.FullRange()); err != nil {
			return err
		}
		return p.device.RecordRead(t, reader.stream, p.pageRegions(page))
	}); err != nil {
		t.Fatal(err)
	}
	waitForHang(r, 1)
	if err := p.device.context.Do(reader.stream.Abort); err != nil {
		t.Fatal(err)
	}
	if err := p.device.ScatterFunc(k.enqueue)(t.Context(), 0, p.devicePages(page)); err != nil {
		t.Fatal(err)
	}
	if n := r.countStreamWaits(); n != 0 {
		t.Errorf("%d waits", n)
	}
	k.wantChunk(t, p.device, 0, pattern(testPageBytes, 4))
}

// A mark that a stream still has to pass is not moved; if a stream has to pass every mark, reads are not marked.
func TestMarksThatAreWaitedForStay(t *testing.T) {
	r := newRig(t)
	p, _ := scatterRig(t, r, Options{}, false)
	reader := newReader(t, p)
	for i := range uint32(marksMax) {
		reader.readPage(t, effects.Page{Index: i % testPages, Length: testPageBytes}, nil)
	}
	var behind []*readMark
	pages := p.devicePages(effects.Page{Index: 3, Length: 1}, effects.Page{Index: 5, Length: 1})
	if err := p.device.context.Do(func(t *acl.Thread) (err error) {
		behind, err = p.marks.waitForReads(t, reader.stream, pages)
		return err
	}); err != nil || len(behind) != 2*marksMax/testPages {
		t.Fatalf("%d marks, %v", len(behind), err)
	}
	for range 2 * marksMax {
		reader.readPage(t, effects.Page{Index: 6, Length: 1}, nil)
	}
	for _, k := range behind {
		if k.waiters != 1 || k.regions[0].Base == p.PageAddress(effects.Page{Index: 6}) {
			t.Errorf("a mark that is waited for was set anew: %+v", k)
		}
	}
	for _, k := range p.marks.marks {
		k.waiters++
	}
	reader.readPage(t, effects.Page{Index: 7, Length: 1}, nil)
	for _, k := range p.marks.marks {
		k.waiters--
		if k.regions[0].Base == p.PageAddress(effects.Page{Index: 7}) {
			t.Error("a mark that is waited for was set anew")
		}
	}
	p.marks.releaseMarks(behind)
}

// Without a node there is nothing to mark.
func TestFilledWithoutANode(t *testing.T) {
	r := newRig(t)
	d := r.openDevice(Options{})
	if err := d.context.Do(func(t *acl.Thread) error {
		return d.RecordRead(t, nil,
			[]plane.Region{{Base: 1, Bytes: 1}})
	}); err != nil {
		t.Error(err)
	}
	opened, err := d.Open(t.Context(), testEnv(newEventBox(), false))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.context.Do(func(t *acl.Thread) error { return d.RecordRead(t, nil, nil) }); err != nil {
		t.Error(err)
	}
	if err := opened.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
