package directory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

const manyRows = 100_000

// What ends 100,000 rows at once touches none of them, and each step afterwards ends as many as it may, whatever their
// number. Rows are counted, no clock is.
func TestEndsAreSwept(t *testing.T) {
	for name, end := range map[string]func(d *Directory, s Sender, a Address){
		"registers anew": func(d *Directory, s Sender, a Address) { d.Register(1, s, a) },
		"deregisters":    func(d *Directory, s Sender, a Address) { d.Deregister(1, s, a) },
		"is synced": func(d *Directory, s Sender, _ Address) {
			d.BeginSync(1, &SyncBegin{Sender: s, Location: []byte("cpu"), ID: []byte("s")})
			d.EndSync(1, &SyncEnd{Sender: s, Location: []byte("cpu"), ID: []byte("s")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := wide()
			c.SweepRows = 1000
			d := fleet(c, 1, manyRows)
			end(d, Sender{Instance: []byte("a")}, Address{IP: []byte("10.0.0.1"), Port: 9000})
			if got := d.Figures(); got.Rows != manyRows || got.Retired != manyRows {
				t.Fatalf("%+v: the end itself has touched rows", got)
			}
			if peers, _ := d.Lookup(1, Sender{Instance: []byte("x")}, []uint64{0, 1, 2}, nil); len(peers) != 0 {
				t.Fatalf("%v have what is ended", peers)
			}
			steps := 0
			for rows := manyRows; rows > 0; steps++ {
				if at, ok := d.Deadline(); !ok || at > 1 {
					t.Fatalf("%d rows are left, and the deadline is %v, %v", rows, at, ok)
				}
				d.Advance(1)
				left := d.Figures().Rows
				if rows-left > c.SweepRows {
					t.Fatalf("a step ends %d rows, %d are the bound", rows-left, c.SweepRows)
				}
				rows = left
			}
			// Empty slots cost a part of a row, and a segment may be looked at in two steps.
			if most := 2 * manyRows / c.SweepRows; steps > most {
				t.Errorf("%d steps for %d rows, %d are the most", steps, manyRows, most)
			}
		})
	}
}

// One step more of workers that went silent, and of syncs that do not go on, ends as many as it may.
func TestManyEndAtOnce(t *testing.T) {
	c := wide()
	c.EndsPerStep, c.Syncs = 4, 8
	d := New(c)
	for i := range 20 {
		s := Sender{Instance: []byte{'a' + byte(i)}}
		d.Register(0, s, Address{URL: []byte("u")})
		if i < c.Syncs/2 {
			if code := d.BeginSync(0, &SyncBegin{Sender: s, Location: []byte("cpu"), ID: []byte("s"),
				Batches: 1}); code != effects.OK {
				t.Fatal(code)
			}
		}
	}
	for now := effects.Time(0).Add(c.Silence); d.Figures().Workers > 0; {
		before := d.Figures()
		if at, ok := d.Deadline(); !ok || at > now {
			t.Fatalf("%d workers are left, and the deadline is %v, %v", before.Workers, at, ok)
		}
		d.Advance(now)
		if after := d.Figures(); before.Workers-after.Workers > c.EndsPerStep || before == after {
			t.Fatalf("a step makes %+v of %+v", after, before)
		}
	}
	if _, ok := d.Deadline(); ok && d.Figures().Retired == 0 {
		t.Error("nobody is left, and there is a deadline")
	}
}

// Where no worker is ever taken for dead, syncs have their deadline all the same, and a directory without any has none.
func TestDeadlineOfSyncs(t *testing.T) {
	c := wide()
	c.Silence = 0
	d := New(c)
	s := Sender{Instance: []byte("a")}
	d.Register(1, s, Address{})
	if at, ok := d.Deadline(); ok {
		t.Errorf("the deadline is %v, and nothing can end", at)
	}
	d.BeginSync(2, &SyncBegin{Sender: s, ID: []byte("s"), Batches: 1})
	if at, ok := d.Deadline(); !ok || at != effects.Time(2).Add(c.SyncTimeout) {
		t.Errorf("the deadline of a sync is %v, %v", at, ok)
	}
}

// However large an index is, one chunk more has no more than one segment made, and nobody else's moved.
func TestGrowthIsBounded(t *testing.T) {
	d := fleet(wide(), 1, manyRows)
	before := d.Figures().Bytes
	s := Sender{Instance: []byte("a")}
	grew, most := 0, 0
	for hash := uint64(manyRows); hash < 3*manyRows; hash++ {
		d.ApplyReport(1, &Report{Sender: s, Location: []byte("cpu"), Operations: []Operation{{Hash: hash, Sequence: hash}}})
		if after := d.Figures().Bytes; after != before {
			most = max(most, after-before)
			grew++
			before = after
		}
	}
	// 64 KiB for 4,096 slots; the list and the table of segments are some bytes for each of those.
	if most > 80<<10 || grew < 2*manyRows/4096 {
		t.Errorf("it grew %d times, by %d bytes at the most", grew, most)
	}
}
