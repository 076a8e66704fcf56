package main

import (
	"fmt"
	"strings"
)

// A kind describes the encoding of the values of a Go type.
type kind struct {
	// read is the expression that reads the value. In the expression, $ is the Go field and @ a pointer to the reader.
	read string
	// write is the expression that appends the value $ to the bytes %.
	write string
	// set is the expression that is true if the value is not zero. If set is empty, the field cannot be omitted.
	set string
	// list is true for slices whose memory the next Decode reuses.
	list bool
	// nested is true for a map inside the message, for which read is a statement.
	nested bool
}

// kinds lists the kinds by Go type, and the kinds that a tag chooses with as=.
var kinds = map[string]kind{
	"bool":               {read: "r.readBool()", write: "appendBool(%, $)", set: "$"},
	"uint16":             {read: "uint16(r.readUint(math.MaxUint16))", write: "appendUint(%, uint64($))", set: "$ != 0"},
	"uint32":             {read: "r.readUint32()", write: "appendUint(%, uint64($))", set: "$ != 0"},
	"uint64":             {read: "r.readUint64()", write: "appendUint(%, $)", set: "$ != 0"},
	"int64":              {read: "r.readInstant()", write: "appendUint(%, uint64($))", set: "$ != 0"},
	"float64":            {read: "r.readFloat()", write: "appendFloat(%, $)", set: "$ != 0"},
	"[]byte":             {read: "r.readText()", write: "appendStr(%, $)", set: "len($) > 0"},
	"[][]byte":           {read: "r.readTexts($)", write: "appendTexts(%, $)", set: "len($) > 0", list: true},
	"[]uint64":           {read: "r.readUint64s($)", write: "appendUints(%, $)", set: "len($) > 0", list: true},
	"[]int64":            {read: "r.readInt64s($)", write: "appendInts(%, $)", set: "len($) > 0", list: true},
	"[][]uint64":         {read: "r.readGroups($)", write: "appendGroups(%, $)", set: "len($) > 0", list: true},
	"[][][]byte":         {read: "r.readMembers($)", write: "appendMembers(%, $)", set: "len($) > 0", list: true},
	"[2]uint64":          {read: "r.readUint64Pair()", write: "appendUints(%, $[:])"},
	"UUID":               {read: "r.readUUID()", write: "appendUUID(%, $)", set: "$ != (UUID{})"},
	"[]UUID":             {read: "r.readUUIDs($)", write: "appendUUIDs(%, $)", set: "len($) > 0", list: true},
	"PullID":             {read: "r.readPullID()", write: "appendPullID(%, $)", set: "$ != (PullID{})"},
	"[]PullID":           {read: "r.readPullIDs($)", write: "appendPullIDs(%, $)", set: "len($) > 0", list: true},
	"ChunkHash":          {read: "r.readHash()", write: "appendHash(%, $)"},
	"[]ChunkHash":        {read: "r.readHashes($)", write: "appendHashes(%, $)", set: "len($) > 0", list: true},
	"Format":             {read: "r.readFormat()", write: "appendUint(%, uint64($))"},
	"Shape":              {read: "r.readShape()", write: "appendShape(%, $)"},
	"Dtype":              {read: "r.readDtype()", write: "appendStr(%, $.String())"},
	"P2PErrorCode":       {read: "r.readP2PError()", write: "appendUint(%, uint64($))"},
	"OpType":             {read: "r.readOpType()", write: "appendStr(%, $.String())"},
	"CommandType":        {read: "r.readCommandType()", write: "appendStr(%, $.String())"},
	"[]Holder":           {read: "r.readHolders($)", write: "appendHolders(%, $)", list: true},
	"[]NixlPackedMember": {read: "r.readPackedMembers($)", write: "appendPackedMembers(%, $)", list: true},
	"ignoredMap":         {read: "r.skipIgnoredMap(w.depth)", write: "append(%, nilByte)"},

	"as=keys":      {read: "r.readKeys($)", write: "appendTexts(%, $)", set: "len($) > 0", list: true},
	"as=planes":    {read: "r.readPlanes($)", write: "appendTexts(%, $)", set: "len($) > 0", list: true},
	"as=blobs":     {read: "r.readBlobs($)", write: "appendBlobs(%, $)", set: "len($) > 0", list: true},
	"as=blocks":    {read: "r.readBlocks($, r.lim.BlockCount)", write: "appendUints(%, $)", set: "len($) > 0", list: true},
	"as=port":      {read: "uint32(r.readUint(portMax))", write: "appendUint(%, uint64($))", set: "$ != 0"},
	"as=positive":  {read: "r.readPositive()", write: "appendUint(%, uint64($))", set: "$ != 0"},
	"as=instant":   {read: "uint64(r.readInstant())", write: "appendUint(%, $)", set: "$ != 0"},
	"as=successor": {read: "r.readUint64() - 1", write: "appendUint(%, $+1)", set: "true"},
	"as=flag":      {read: "r.readUint32() != 0", write: "appendUint(%, 1)", set: "$"},
	"as=request":   {read: "r.readRequestID()", write: "appendStr(%, $)", set: "len($) > 0"},
}

// kindOf returns the kind of a Go type, or the kind that the option as chooses. It fails if there is no such kind.
func kindOf(goType, as string) (kind, error) {
	if limit, ok := strings.CutPrefix(as, "bin="); ok {
		read := fmt.Sprintf("r.readBin(r.lim.%s, %q)", limit, limit)
		return kind{read: read, write: "appendBin(%, $)", set: "len($) > 0"}, nil
	}
	name := goType
	if as != "" {
		name = as
	}
	k, ok := kinds[name]
	if !ok {
		return kind{}, fmt.Errorf("no kind for %s: add it to kinds in tools/codecgen", name)
	}
	return k, nil
}

// kindOf returns the kind of a Go type as the function kindOf does, and also of maps inside messages and lists of such
// maps.
func (s *spec) kindOf(goType, as string) (kind, error) {
	limit, isList := strings.CutPrefix(as, "max=")
	element := strings.TrimPrefix(goType, "[]")
	if isList {
		read := fmt.Sprintf("r.%sList($, r.lim.%s, %q)", lowerFirst(element), limit, limit)
		return kind{read: read, write: "append" + element + "List(%, $)", set: "len($) > 0", list: true}, nil
	}
	if s.structs[goType] != nil && as == "" && kinds[goType].read == "" {
		return kind{read: "$.decodeMap(@, w.depth+1)", write: "$.appendMap(%)", nested: true}, nil
	}
	return kindOf(goType, as)
}

// lowerFirst returns the unexported form of an exported name.
func lowerFirst(name string) string {
	i := 1
	for i < len(name)-1 && name[i] >= 'A' && name[i] <= 'Z' && name[i+1] >= 'A' && name[i+1] <= 'Z' {
		i++
	}
	return strings.ToLower(name[:i]) + name[i:]
}
