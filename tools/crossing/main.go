// Command crossing says what would have to be exported if a package were cut in two: which identifiers that some of its
// files declare are used by others of them, how often, and where.
//
// Files are named by patterns for their names, with spaces between them; * is all that the other side does not name.
//
// usage: go run ./tools/crossing PACKAGE 'FILES' 'FILES THAT USE THEM'
package main

import (
	"cmp"
	"fmt"
	"go/token"
	"go/types"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: crossing PACKAGE 'FILES' 'FILES THAT USE THEM'")
	}
	if err := crossing(os.Stdout, os.Args[1], strings.Fields(os.Args[2]), strings.Fields(os.Args[3])); err != nil {
		log.Fatal("crossing: ", err)
	}
}

// crossing prints the most used first.
func crossing(out io.Writer, pkg string, from, to []string) error {
	const need = packages.NeedName | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo |
		packages.NeedImports | packages.NeedDeps
	all, err := packages.Load(&packages.Config{Mode: need}, pkg)
	if err != nil {
		return err
	}
	if len(all) != 1 || packages.PrintErrors(all) > 0 {
		return fmt.Errorf("%q is %d packages: name one that compiles", pkg, len(all))
	}
	p := all[0]
	file := func(at token.Pos) string { return filepath.Base(p.Fset.Position(at).Filename) }
	owners := ownersOf(p.Types.Scope())
	uses, names, sites := map[token.Pos]int{}, map[token.Pos]string{}, map[token.Pos]map[string]bool{}
	for id, o := range p.TypesInfo.Uses {
		at, user := o.Pos(), file(id.Pos()) // What a generic type is made into stands where the type does.
		if o.Pkg() != p.Types || !in(from, to, file(at)) || !in(to, from, user) || file(at) == user {
			continue
		}
		if sites[at] == nil {
			sites[at], names[at] = map[string]bool{}, owners[at]+o.Name()
		}
		uses[at]++
		sites[at][user] = true
	}
	if len(uses) == 0 {
		return fmt.Errorf("nothing crosses: do the patterns name files of the package?")
	}
	for _, at := range slices.SortedFunc(maps.Keys(uses), func(a, b token.Pos) int {
		return cmp.Or(uses[b]-uses[a], cmp.Compare(names[a], names[b]), int(a-b))
	}) {
		users := strings.Join(slices.Sorted(maps.Keys(sites[at])), " ")
		fmt.Fprintf(out, "%4d  %s\t%s\t<- %s\n", uses[at], names[at], file(at), users)
	}
	return nil
}

// in says whether a file is of one side.
func in(side, other []string, file string) bool {
	if slices.Equal(side, []string{"*"}) {
		return !in(other, nil, file)
	}
	return slices.ContainsFunc(side, func(pattern string) bool {
		ok, err := filepath.Match(pattern, file)
		return err == nil && ok
	})
}

// ownersOf says of which type fields and methods are, with a dot behind it.
func ownersOf(s *types.Scope) map[token.Pos]string {
	owners := map[token.Pos]string{}
	for _, name := range s.Names() {
		t, ok := s.Lookup(name).Type().(*types.Named)
		if !ok || t.Obj().Name() != name {
			continue
		}
		for m := range t.Methods() {
			owners[m.Pos()] = name + "."
		}
		if u, ok := t.Underlying().(*types.Struct); ok {
			for f := range u.Fields() {
				owners[f.Pos()] = name + "."
			}
		}
	}
	return owners
}
