"""The picture of the demo's output."""

from xml.etree import ElementTree as ET

from dev.demo.picture import picture

TEXT = "{http://www.w3.org/2000/svg}text"


def test_the_picture_shows_every_line_with_its_spaces() -> None:
    drawn = ET.fromstring(picture("$ run <it> & see\n\n   indented\n"))
    assert [each.text for each in drawn.iter(TEXT)] == ["$ run <it> & see", "   indented"]
    assert {each.get("x") for each in drawn.iter(TEXT)} == {"16"}
    assert drawn.get("height") == str(2 * 16 + 3 * 18)
