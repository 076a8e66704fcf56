package rank

import "testing"

// What a rank of 1,024 pages costs to make, and to make in the memory of another one that carried pushes.
func BenchmarkNew(b *testing.B) {
	cfg := newLoop(b, 64).r.cfg
	cfg.Pages = 1024
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(cfg, 1, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecycle(b *testing.B) {
	l := newLoop(b, 64)
	for range 10 {
		l.push()
	}
	cfg := l.r.cfg
	cfg.Pages = 1024
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Recycle(l.r, cfg, 1, 0); err != nil {
			b.Fatal(err)
		}
	}
}
