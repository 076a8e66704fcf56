package foreign

import "slices"

// writeUnknown writes a field that the map does not declare. The names of the declared fields are not used.
func (e *encoder) writeUnknown(declared []entry) {
	name := e.draw(len(unknownNames))
	for slices.ContainsFunc(declared, func(x entry) bool { return string(e.in[x.at:x.value]) == unknownNames[name] }) {
		name = (name + 1) % len(unknownNames)
	}
	e.writeRaw(unknownNames[name])
	e.writeRaw(unknownValues[e.draw(len(unknownValues))])
}

func (e *encoder) writeRaw(value string) { e.out = append(e.out, value...) }

// unknownNames are names of unknown fields, in several forms. Some are similar to declared names.
var unknownNames = []string{
	"\xa5later", "\xa0", "\xa4Type", "\xa5type_", "\xa6kvf_vv", "\xa4kvf_", "\xa3key", "\xd9\x05later",
	"\xda\x00\x05keys2", "\xdb\x00\x00\x00\x08kvf_inc2", "\xa9\xd0\xba\xd0\xbb\xd1\x8e\xd1\x87!",
	"\xd9\x28kvf_a_name_that_no_short_form_would_hold",
}

// unknownValues are values of every type, in every form, small and at the edges of their lengths.
var unknownValues = []string{
	"\x07", "\xe0", "\xcc\xff", "\xcd\xff\xff", "\xce\xff\xff\xff\xff", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
	"\xd0\x80", "\xd1\x80\x00", "\xd2\x80\x00\x00\x00", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
	"\xc0", "\xc2", "\xc3", "\xca\x3f\x80\x00\x00", "\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00",
	"\xa0", "\xa4type", "\xd9\x04type", "\xda\x00\x01a", "\xdb\x00\x00\x00\x02ab",
	"\xc4\x00", "\xc4\x02\xff\xfe", "\xc5\x00\x01\xff", "\xc6\x00\x00\x00\x01\xff",
	// Extension types; those of type -1 are instants.
	"\xd4\x01a", "\xd5\x7fab", "\xd6\xffabcd", "\xd7\xffabcdefgh", "\xd8\x05abcdefghijklmnop",
	"\xc7\x00\x05", "\xc7\x0c\xffabcdefghijkl", "\xc8\x00\x02\x05ab", "\xc9\x00\x00\x00\x01\x80a",
	// Lists, and maps with names that need not be text, nor different.
	"\x90", "\x93\x01\xc0\xa1a", "\xdc\x00\x01\x90", "\xdd\x00\x00\x00\x02\x80\xd4\x01a",
	"\x80", "\x81\x07\x08", "\x82\xa1a\x01\xa1a\x02", "\x81\xa4type\xacAllocRequest", "\x81\xa4type\xb0PullReadyDoneAck",
	"\xde\x00\x01\xa4type\xaaProxyNotif", "\xdf\x00\x00\x00\x01\xc2\xdf\x00\x00\x00\x00",
	"\x91\x81\xa1a\x91\x81\xa1b\x91\xc3",
}
