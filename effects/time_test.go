package effects

import "testing"

// An instant that would come after the last one is the last one: a deadline so far away never comes, instead of having
// passed.
func TestTimeStaysAtTheEnd(t *testing.T) {
	const last Time = 1<<63 - 1
	for _, c := range []struct {
		at   Time
		d    Duration
		want Time
	}{{last - 1, 1, last}, {last, 1, last}, {last - 5, 1 << 62, last}, {1, 1<<63 - 1, last}, {5, -6, -1}, {last, -1,
		last - 1}} {
		if got := c.at.Add(c.d); got != c.want {
			t.Errorf("%d and %d are %d; want %d", c.at, c.d, got, c.want)
		}
	}
}
