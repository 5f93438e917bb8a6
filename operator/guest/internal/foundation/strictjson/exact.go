package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"unicode/utf8"
)

// DecodeExact decodes one JSON document like Decode, and requires besides that every field is there
// unless its type may leave it out, that names have the case of their definition, that nothing is null
// and that what may be left out is not there empty: encoded again, the value is the same document.
func DecodeExact[T any](data []byte) (T, error) {
	var zero T
	if !utf8.Valid(data) {
		return zero, errors.New("not UTF-8")
	}
	value, err := Decode[T](data)
	if err != nil {
		return zero, err
	}
	again, err := json.Marshal(value)
	if err != nil {
		return zero, err
	}
	given, err := generic(data)
	if err != nil {
		return zero, err
	}
	expected, err := generic(again)
	if err != nil {
		return zero, err
	}
	if err := sameShape("", given, expected); err != nil {
		return zero, err
	}
	return value, nil
}

func generic(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

// sameShape returns an error that names the first field that differs.
func sameShape(field string, given, expected any) error {
	if given == nil {
		return fmt.Errorf("%s: null", nameOf(field))
	}
	if expected, isObject := expected.(map[string]any); isObject {
		given, isObject := given.(map[string]any)
		if !isObject {
			return fmt.Errorf("%s: not an object", nameOf(field))
		}
		for _, name := range slices.Sorted(maps.Keys(expected)) {
			value, found := given[name]
			if !found {
				return fmt.Errorf("%s: missing", nameOf(field+"."+name))
			}
			if err := sameShape(field+"."+name, value, expected[name]); err != nil {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if _, found := expected[name]; !found {
				return fmt.Errorf("%s: unknown, or empty where it must be left out", nameOf(field+"."+name))
			}
		}
		return nil
	}
	list, isList := expected.([]any)
	if others, alsoList := given.([]any); isList && alsoList && len(others) == len(list) {
		for index := range list {
			if err := sameShape(fmt.Sprintf("%s[%d]", field, index), others[index], list[index]); err != nil {
				return err
			}
		}
		return nil
	}
	if !reflect.DeepEqual(given, expected) {
		return fmt.Errorf("%s: not in its canonical form", nameOf(field))
	}
	return nil
}

func nameOf(field string) string {
	if field == "" {
		return "document"
	}
	return field[1:]
}
