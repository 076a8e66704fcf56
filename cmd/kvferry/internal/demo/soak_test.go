package demo

import "testing"

func TestGrowth(t *testing.T) {
	early := Usage{MemoryBytes: 100 << 20, Files: 40, Goroutines: 100}
	for name, test := range map[string]struct {
		late Usage
		want bool
	}{
		"the same":            {early, true},
		"less":                {Usage{90 << 20, 30, 90}, true},
		"a little more":       {Usage{125 << 20, 50, 140}, true},
		"more memory":         {Usage{127 << 20, 40, 100}, false},
		"more files":          {Usage{100 << 20, 53, 100}, false},
		"more goroutines":     {Usage{100 << 20, 40, 143}, false},
		"nothing was sampled": {Usage{}, false},
	} {
		g := Growth{Early: early, Late: test.late}
		if g.complete(); g.OK != test.want {
			t.Errorf("%s: %t", name, g.OK)
		}
	}
}
