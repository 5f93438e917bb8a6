package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode"
	"unicode/utf16"
)

// visible writes lines, one with each call. The content of verdicts and logs is in part what a bundle, an enclave
// or a repository chose: characters that cannot be seen, such as those that end a line or move a terminal's
// cursor, are written as \uXXXX, which is valid in JSON too.
type visible struct{ out io.Writer }

// Write implements io.Writer.
func (v visible) Write(line []byte) (int, error) {
	var made bytes.Buffer
	for _, each := range string(bytes.TrimSuffix(line, []byte("\n"))) {
		switch first, second := utf16.EncodeRune(each); {
		case unicode.IsPrint(each):
			made.WriteRune(each)
		case first == unicode.ReplacementChar: // it is one unit of UTF-16
			fmt.Fprintf(&made, `\u%04x`, each)
		default:
			fmt.Fprintf(&made, `\u%04x\u%04x`, first, second)
		}
	}
	made.WriteByte('\n')
	if _, err := v.out.Write(made.Bytes()); err != nil {
		return 0, err
	}
	return len(line), nil
}

var wordPattern = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]+$`)

// word returns a name as it is if it is one word, else in quotation marks: it could contain more than a name.
func word(name string) string {
	if wordPattern.MatchString(name) {
		return name
	}
	return strconv.Quote(name)
}
