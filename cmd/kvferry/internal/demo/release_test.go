package demo

import "testing"

// Processes run the other release by their names, with or without a number, and after an upgrade only until they are
// killed. A replay in which none runs it has tried nothing, and fails.
func TestProcessesOfTheOtherRelease(t *testing.T) {
	for _, c := range []struct {
		processes []string
		upgrade   bool
		name      string
		life      int
		want      string
	}{
		{[]string{"decode"}, false, "decode-1", 1, "other"},
		{[]string{"decode"}, false, "decode-1", 2, "other"},
		{[]string{"decode"}, true, "decode-1", 1, "other"},
		{[]string{"decode"}, true, "decode-1", 2, ""},
		{[]string{"decode-1"}, false, "decode-0", 1, ""},
		{[]string{"decode-1"}, false, "decode-10", 1, ""},
		{[]string{"proxy", "prefill"}, false, "prefill", 1, "other"},
		{[]string{"dir"}, false, "directory-0", 1, ""},
	} {
		r := newReleaseChoice(&OtherRelease{Path: "other", Processes: c.processes, Upgrade: c.upgrade})
		if got := r.programPath(c.name, c.life); got != c.want {
			t.Errorf("%+v: the program is %q", c, got)
		}
		o := Outcome{OK: true}
		if r.report(&o); o.OK != (c.want != "") || (o.OtherRelease == 1) != (c.want != "") {
			t.Errorf("%+v: the outcome is %+v", c, o)
		}
	}
	o := Outcome{OK: true}
	if newReleaseChoice(nil).report(&o); !o.OK || newReleaseChoice(nil).programPath("decode-0", 1) != "" {
		t.Errorf("without another release: %+v", o)
	}
}
