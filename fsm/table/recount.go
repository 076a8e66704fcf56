package table

// A Recount counts the places that each class has in a table, from the rows, and reports what a Share says beside it.
// Every way on which a row ends must give the place back. A place that one of the ways forgets is missing for ever, and
// shows nowhere but in this comparison. Use a Recount for inspection only.
type Recount struct {
	// Counts has an entry for each share that was reported.
	Counts   []ShareCount
	perClass []int // by class: the places that were added since the last report
	total    int
}

// A ShareCount is what a share counts, what the table really contains, and which rows the table may hold at rest.
type ShareCount struct {
	Name            string
	Counted, Actual int
	Rest            Rest
}

// Reset drops all counts.
func (r *Recount) Reset() { r.Counts = r.Counts[:0] }

// Add counts n places of a class.
func (r *Recount) Add(class, n int) {
	for class >= len(r.perClass) {
		r.perClass = append(r.perClass, 0)
	}
	r.perClass[class] += n
	r.total += n
}

// ReportShare reports what s counts and the places that were added. If the two differ for a class, the numbers are
// those of the first such class. The next share begins without places.
func (r *Recount) ReportShare(name string, s *Share, rest Rest) {
	r.Report(name, len(s.perClass), s.CountOf, rest)
}

// Report does the same for counts by class that are no Share. The places of further classes are not compared.
func (r *Recount) Report(name string, classes int, countOf func(class int) int, rest Rest) {
	counted, actual := 0, r.total
	for class := range classes {
		places, count := 0, countOf(class)
		if class < len(r.perClass) {
			places = r.perClass[class]
		}
		if counted += count; count != places {
			counted, actual = count, places
			break
		}
	}
	clear(r.perClass)
	r.total = 0
	r.Counts = append(r.Counts, ShareCount{name, counted, actual, rest})
}

// RecountRows adds the places of all rows of a table, and reports them beside s. placesOf returns the class of a row,
// and how many places of the class the row has.
func RecountRows[T any](r *Recount, name string, s *Share, rows *Slab[T], rest Rest, placesOf func(x *T) (class, n int)) {
	for slot := range rows.Slots() {
		if h := rows.At(slot); h != 0 {
			r.Add(placesOf(rows.Get(h)))
		}
	}
	r.ReportShare(name, s, rest)
}
