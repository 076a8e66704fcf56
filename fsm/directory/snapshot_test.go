package directory

import (
	"reflect"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/snapshot"
)

// A directory is a plain tree: a copy has nothing in common with it that can change, and both go on alike.
func TestSnapshot(t *testing.T) {
	w := snapshot.New()
	if faults := w.CheckTags(reflect.TypeFor[Directory]()); len(faults) > 0 {
		t.Fatal(faults)
	}
	d := fleet(wide(), 6, 3000)
	s := Sender{Instance: []byte("a")}
	d.BeginSync(1, &SyncBegin{Sender: s, Location: []byte("cpu"), ID: []byte("s"), Batches: 70})
	was := snapshot.Hash(w, d)
	copied := snapshot.Clone(w, d)
	goOn := func(d *Directory) {
		d.AddSyncBatch(2, &SyncBatch{Sender: s, Location: []byte("cpu"), ID: []byte("s"), Batch: 69,
			Hashes: []uint64{1, 2, 9999}})
		d.ApplyReport(2, &Report{Sender: s, Location: []byte("cpu"), Unnumbered: true,
			Operations: []Operation{{Hash: 4000}, {Evict: true}}})
		d.Register(3, Sender{Instance: []byte("b")}, Address{URL: []byte("new")})
		for range 3 {
			d.Lookup(3, s, []uint64{0, 1, 2}, nil)
			d.Advance(effects.Time(4))
		}
	}
	if snapshot.Hash(w, copied) != was {
		t.Fatal("a copy is another one")
	}
	goOn(copied)
	if snapshot.Hash(w, d) != was || snapshot.Hash(w, copied) == was {
		t.Fatal("a directory changes with its copy, or the copy not at all")
	}
	goOn(d)
	if snapshot.Hash(w, d) != snapshot.Hash(w, copied) {
		t.Fatal("a directory and its copy go on differently")
	}
}
