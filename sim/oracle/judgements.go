package oracle

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/sim/coverage"
)

// Judgements counts for each check how often the check judged, and how often it was void. The zero value has counted
// nothing. In JSON, each check that occurred has the two numbers under its name.
type Judgements struct{ counts []judgementCounts } // by check; nil is none

type judgementCounts struct{ judged, void uint64 }

// AddRun adds the counts of a run.
func (j *Judgements) AddRun(run *coverage.Coverage) {
	j.makeRoom()
	for i := range j.counts {
		j.counts[i].judged += run.Count(pointJudged + coverage.Point(i))
		j.counts[i].void += run.Count(pointVoid + coverage.Point(i))
	}
}

// Merge adds the counts of o.
func (j *Judgements) Merge(o *Judgements) {
	j.makeRoom()
	for i, n := range o.counts {
		j.counts[i].judged += n.judged
		j.counts[i].void += n.void
	}
}

// makeRoom makes room for the counts of all checks.
func (j *Judgements) makeRoom() {
	if j.counts == nil {
		j.counts = make([]judgementCounts, len(checkTable))
	}
}

// CountsOf returns how often the check judged, and how often it was void.
func (j *Judgements) CountsOf(c Check) (judged, void uint64) {
	if j.counts == nil {
		return 0, 0
	}
	return j.counts[c].judged, j.counts[c].void
}

// MarshalJSON writes the counts by name.
func (j Judgements) MarshalJSON() ([]byte, error) {
	named := map[string][2]uint64{}
	for i, n := range j.counts {
		if n != (judgementCounts{}) {
			named[Check(i).String()] = [2]uint64{n.judged, n.void}
		}
	}
	return json.Marshal(named)
}

// UnmarshalJSON reads counts. The error says which name is not the name of a check of this program.
func (j *Judgements) UnmarshalJSON(text []byte) error {
	var named map[string][2]uint64
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	*j = Judgements{}
	j.makeRoom()
	for name, n := range named {
		i := slices.IndexFunc(Checks(), func(c Check) bool { return c.String() == name })
		if i < 0 {
			return fmt.Errorf("check %q is unknown: merge results of one version of the program only", name)
		}
		j.counts[i] = judgementCounts{n[0], n[1]}
	}
	return nil
}
