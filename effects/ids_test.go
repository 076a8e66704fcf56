package effects

import "testing"

func TestDurationReads(t *testing.T) {
	for d, want := range map[Duration]string{
		0: "0ns", 7: "7ns", 999: "999ns", 1000: "1µs", 1_500: "1.5µs", 250 * Millisecond: "250ms",
		5 * Second: "5s", 1500 * Millisecond: "1.5s", Second + 1: "1.000000001s", 90 * Second: "90s",
		-1500 * Millisecond: "-1.5s", -3: "-3ns", 1<<63 - 1: "9223372036.854775807s",
	} {
		if got := d.String(); got != want {
			t.Errorf("%d reads %q, want %q", int64(d), got, want)
		}
	}
}
