package sim

// checkEncodings fails a successful run that differs from the same run with all messages in kvferry's own encoding
// (S26).
func (w *trial) compared(o Options) {
	p := w.Source
	if w.Failure != nil || !p.Foreign() {
		return
	}
	q := p.Native()
	plain := Options{Plan: &q, System: o.System, careless: o.careless}
	if said, err := doneIn(plain); err != nil || said == w.Journal.Said {
		return
	}
	as, own, at := linesOf(Options{Plan: p, System: o.System, careless: o.careless}, plain)
	w.FailAs("S26", Promise("S26"),
		"with messages in other forms line %d of the event log is %q, with ours %q", at, as, own)
}

// doneIn runs a plan and returns a hash over the event log without the bytes that machines received.
func doneIn(o Options) (said uint64, err error) {
	w := trials.Get().(*trial)
	if err := w.begin(o, o.Plan); err != nil {
		return 0, err
	}
	w.Journal.Compares = true
	w.Live()
	w.reportEnd()
	said = w.Journal.Said
	if w.Failure == nil {
		w.retire()
	}
	return said, nil
}

// linesOf returns the first lines in which the event logs of two plans differ, and the number of that line.
func linesOf(a, b Options) (one, other string, at int) {
	var logs [2][]string
	for i, o := range []Options{a, b} {
		o.Log = func(line string) { logs[i] = append(logs[i], line) }
		if _, err := doneIn(o); err != nil {
			return "", err.Error(), 0
		}
	}
	for i := range max(len(logs[0]), len(logs[1])) {
		line := [2]string{"its end", "its end"}
		for k := range logs {
			if i < len(logs[k]) {
				line[k] = logs[k][i]
			}
		}
		if line[0] != line[1] {
			return line[0], line[1], i + 1
		}
	}
	return "the same", "the same but for what a message says", 0
}
