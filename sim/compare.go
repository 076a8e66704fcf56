package sim

// checkEncodings fails a successful run that differs from the same run with all messages in kvferry's own encoding
// (S26).
func (w *trial) checkEncodings(o Options) {
	p := w.SourcePlan
	if w.Failure != nil || !p.HasForeign() {
		return
	}
	q := p.WithoutForeign()
	native := Options{Plan: &q, System: o.System, driverMistake: o.driverMistake}
	if hash, err := sentHashOf(native); err != nil || hash == w.Journal.SentHash {
		return
	}
	line, nativeLine, at := firstDifference(Options{Plan: p, System: o.System, driverMistake: o.driverMistake}, native)
	w.FailAs("S26", Promise("S26"),
		"with messages of another encoder line %d of the event log is %q, with kvferry's encoder %q", at, line, nativeLine)
}

// sentHashOf runs a plan and returns a hash over the event log without the bytes that machines received.
func sentHashOf(o Options) (hash uint64, err error) {
	w := trials.Get().(*trial)
	if err := w.prepareRun(o, o.Plan); err != nil {
		return 0, err
	}
	w.Journal.KeepsSentHash = true
	w.RunPhases()
	w.reportRunEnd()
	hash = w.Journal.SentHash
	if w.Failure == nil {
		w.recycleTrial()
	}
	return hash, nil
}

// firstDifference returns the first lines in which the event logs of two plans differ, and the number of that line.
func firstDifference(a, b Options) (lineA, lineB string, at int) {
	var logs [2][]string
	for i, o := range []Options{a, b} {
		o.Log = func(line string) { logs[i] = append(logs[i], line) }
		if _, err := sentHashOf(o); err != nil {
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
	return "the same", "the same except for the content of a message", 0
}
