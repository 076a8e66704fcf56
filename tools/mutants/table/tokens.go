package table

import (
	"go/scanner"
	"go/token"
)

// A lexeme is a token of Go text, with the offsets of the first byte and of the byte after the last.
type lexeme struct {
	text     string
	from, to int
}

// scanTokens returns the tokens of Go text without comments and without the semicolons that Go inserts at line ends.
func scanTokens(text []byte) (all []lexeme, err error) {
	var errs scanner.ErrorList
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, errs.Add, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return all, errs.Err()
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		if literal == "" {
			literal = tok.String()
		}
		from := file.Offset(pos)
		all = append(all, lexeme{literal, from, from + len(literal)})
	}
}

// findTokens returns the places in text at which the tokens of old occur, as pairs of offsets.
func findTokens(text []byte, old string) (places [][2]int, err error) {
	in, err := scanTokens(text)
	if err != nil {
		return nil, err
	}
	want, err := scanTokens([]byte(old))
	if err != nil {
		return nil, err
	}
	for i := range in {
		if n := matchTokens(in[i:], want); n > 0 {
			places = append(places, [2]int{in[i].from, in[i+n-1].to})
		}
	}
	return places, nil
}

// matchTokens returns the number of tokens at the start of text that are equal to all tokens of want, or 0. A comma
// before a closing bracket, which a line break requires, may be in only one of the two texts.
func matchTokens(text, want []lexeme) int {
	if len(text) == 0 || len(want) == 0 || text[0].text != want[0].text {
		return 0
	}
	i := 0
	for j := 0; j < len(want); {
		switch {
		case i < len(text) && text[i].text == want[j].text:
			i, j = i+1, j+1
		case isTrailingComma(text, i) && isClosingBracket(want, j):
			i++
		case isTrailingComma(want, j) && isClosingBracket(text, i):
			j++
		default:
			return 0
		}
	}
	return i
}

func isTrailingComma(all []lexeme, i int) bool {
	return i < len(all) && all[i].text == "," && isClosingBracket(all, i+1)
}

func isClosingBracket(all []lexeme, i int) bool {
	return i < len(all) && (all[i].text == ")" || all[i].text == "]" || all[i].text == "}")
}
