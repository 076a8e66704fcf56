package table

// A Share bounds what each class has of a table: no more than it leaves. So one that takes without end always leaves as
// much for the next.
type Share struct {
	of    []int // by class
	total int
	most  int
}

// Emptied returns the shares of a table of most places, of which nobody has any, in the memory of s, which is not used
// any more.
func (s *Share) Emptied(most, classes int) Share { return Share{of: Zeroed(s.of, classes), most: most} }

// Zeroed returns n zero values, in the memory of s if that is enough. It is not used any more for anything else.
func Zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// May says whether class may have one more.
func (s *Share) May(class int) bool { return s.of[class] < s.most-s.total }

// MayAfter is May once class gives has given one back. A class below 0 has nothing, and gives nothing.
func (s *Share) MayAfter(class, gives int) bool {
	of, total := 0, s.total
	if class >= 0 {
		of = s.of[class]
	}
	if gives >= 0 {
		total--
	}
	if gives >= 0 && gives == class {
		of--
	}
	return of < s.most-total
}

// Left is how many more class may have, if nobody else takes or gives.
func (s *Share) Left(class int) int { return max(0, s.most-s.total-s.of[class]+1) / 2 }

// Of is how many class has.
func (s *Share) Of(class int) int { return s.of[class] }

// All is how many all classes have.
func (s *Share) All() int { return s.total }

// Take gives class one more.
func (s *Share) Take(class int) { s.Add(class, 1) }

// Give takes one of class back.
func (s *Share) Give(class int) { s.Add(class, -1) }

// Add gives class n more, or takes them back.
func (s *Share) Add(class, n int) {
	s.of[class] += n
	s.total += n
}
