package table

// Share bounds how many places of a table each class has: no more than it leaves free. So a class that takes places
// without end always leaves as many for the next class. Example: in a table of 12 places the first class can take 6,
// the second 3, the third 2, and the fourth 1.
type Share struct {
	of    []int // by class
	total int   // the sum of of
	most  int   // the number of places of the table
}

// Emptied returns the shares of a table of most places, none of which is taken, in the memory of s. The caller must not
// use s afterwards.
func (s *Share) Emptied(most, classes int) Share { return Share{of: Zeroed(s.of, classes), most: most} }

// Zeroed returns n zero values, in the memory of s if s is large enough. The caller must not use s afterwards.
func Zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// May reports whether class may take one more place.
func (s *Share) May(class int) bool { return s.of[class] < s.most-s.total }

// MayAfter reports whether class may take one more place after class gives has given back a place. A class below 0 has
// no places and gives none back.
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

// Left returns how many more places class may take if no other class takes or gives back places.
func (s *Share) Left(class int) int { return max(0, s.most-s.total-s.of[class]+1) / 2 }

// Of returns the number of places of class.
func (s *Share) Of(class int) int { return s.of[class] }

// All returns the number of places of all classes.
func (s *Share) All() int { return s.total }

// Take counts one more place for class.
func (s *Share) Take(class int) { s.Add(class, 1) }

// Give counts one place less for class.
func (s *Share) Give(class int) { s.Add(class, -1) }

// Add counts n more places for class, or fewer if n is negative.
func (s *Share) Add(class, n int) {
	s.of[class] += n
	s.total += n
}
