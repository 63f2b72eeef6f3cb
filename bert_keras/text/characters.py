"""The character classes of the reference tokenizer, as ranges of code points.

Source: `tokenizers` 0.23 (`BertNormalizer` and `BertPreTokenizer`), swept over all
1,112,064 code points by `tests/goldens/find_characters.py`; `--check` there checks that
nothing has changed. The classes follow an old Unicode version and have quirks
(one CJK block starts at U+2B920, where Google's code has U+2B820), so neither
`unicodedata` nor ICU can stand in for them.
"""

from __future__ import annotations

import dataclasses
import functools
import unicodedata
from collections.abc import Callable, Iterable

import numpy as np

Ranges = tuple[tuple[int, int], ...]


def _ranges(text: str) -> Ranges:
    """Return (first, last) pairs from words such as `9-D` or `20`, in hexadecimal."""
    words = (word.partition("-") for word in text.split())
    return tuple((int(a, 16), int(b or a, 16)) for a, _, b in words)


# Dropped before anything else: controls, formats, private use, U+FFFD. Unassigned code
# points stay.
DELETED = _ranges(
    """
    0-8 B-C E-1F 7F-9F AD 600-605 61C 6DD 70F 180E 200B-200F 202A-202E 2060-2064
    2066-206F E000-F8FF FEFF FFF9-FFFB FFFD 110BD 1BCA0-1BCA3 1D173-1D17A E0001
    E0020-E007F F0000-FFFFD 100000-10FFFD
    """
)
# Replaced by a space.
SPACES = _ranges("9-A D 20 A0 1680 2000-200A 2028-2029 202F 205F 3000")
# Split off as words of one character, before accents are stripped.
CJK = _ranges(
    "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B81F 2B920-2CEAF 2F800-2FA1F"
)
# Words of one character, judged after lower-casing and stripping.
PUNCTUATION = _ranges(
    """
    21-2F 3A-40 5B-60 7B-7E A1 A7 AB B6-B7 BB BF 37E 387 55A-55F 589-58A 5BE 5C0 5C3 5C6
    5F3-5F4 609-60A 60C-60D 61B 61E-61F 66A-66D 6D4 700-70D 7F7-7F9 830-83E 85E 964-965
    970 AF0 DF4 E4F E5A-E5B F04-F12 F14 F3A-F3D F85 FD0-FD4 FD9-FDA 104A-104F 10FB
    1360-1368 1400 166D-166E 169B-169C 16EB-16ED 1735-1736 17D4-17D6 17D8-17DA 1800-180A
    1944-1945 1A1E-1A1F 1AA0-1AA6 1AA8-1AAD 1B5A-1B60 1BFC-1BFF 1C3B-1C3F 1C7E-1C7F
    1CC0-1CC7 1CD3 2010-2027 2030-2043 2045-2051 2053-205E 207D-207E 208D-208E 2308-230B
    2329-232A 2768-2775 27C5-27C6 27E6-27EF 2983-2998 29D8-29DB 29FC-29FD 2CF9-2CFC
    2CFE-2CFF 2D70 2E00-2E2E 2E30-2E42 3001-3003 3008-3011 3014-301F 3030 303D 30A0 30FB
    A4FE-A4FF A60D-A60F A673 A67E A6F2-A6F7 A874-A877 A8CE-A8CF A8F8-A8FA A8FC A92E-A92F
    A95F A9C1-A9CD A9DE-A9DF AA5C-AA5F AADE-AADF AAF0-AAF1 ABEB FD3E-FD3F FE10-FE19
    FE30-FE52 FE54-FE61 FE63 FE68 FE6A-FE6B FF01-FF03 FF05-FF0A FF0C-FF0F FF1A-FF1B
    FF1F-FF20 FF3B-FF3D FF3F FF5B FF5D FF5F-FF65 10100-10102 1039F 103D0 1056F 10857
    1091F 1093F 10A50-10A58 10A7F 10AF0-10AF6 10B39-10B3F 10B99-10B9C 11047-1104D
    110BB-110BC 110BE-110C1 11140-11143 11174-11175 111C5-111C9 111CD 111DB 111DD-111DF
    11238-1123D 112A9 114C6 115C1-115D7 11641-11643 1173C-1173E 12470-12474 16A6E-16A6F
    16AF5 16B37-16B3B 16B44 1BC9F 1DA87-1DA8B
    """
)
# Dropped if accents are stripped, after canonical decomposition.
MARKS = _ranges(
    """
    300-36F 483-487 591-5BD 5BF 5C1-5C2 5C4-5C5 5C7 610-61A 64B-65F 670 6D6-6DC 6DF-6E4
    6E7-6E8 6EA-6ED 711 730-74A 7A6-7B0 7EB-7F3 816-819 81B-823 825-827 829-82D 859-85B
    8E3-902 93A 93C 941-948 94D 951-957 962-963 981 9BC 9C1-9C4 9CD 9E2-9E3 A01-A02 A3C
    A41-A42 A47-A48 A4B-A4D A51 A70-A71 A75 A81-A82 ABC AC1-AC5 AC7-AC8 ACD AE2-AE3 B01
    B3C B3F B41-B44 B4D B56 B62-B63 B82 BC0 BCD C00 C3E-C40 C46-C48 C4A-C4D C55-C56
    C62-C63 C81 CBC CBF CC6 CCC-CCD CE2-CE3 D01 D41-D44 D4D D62-D63 DCA DD2-DD4 DD6 E31
    E34-E3A E47-E4E EB1 EB4-EB9 EBB-EBC EC8-ECD F18-F19 F35 F37 F39 F71-F7E F80-F84
    F86-F87 F8D-F97 F99-FBC FC6 102D-1030 1032-1037 1039-103A 103D-103E 1058-1059
    105E-1060 1071-1074 1082 1085-1086 108D 109D 135D-135F 1712-1714 1732-1734 1752-1753
    1772-1773 17B4-17B5 17B7-17BD 17C6 17C9-17D3 17DD 180B-180D 18A9 1920-1922 1927-1928
    1932 1939-193B 1A17-1A18 1A1B 1A56 1A58-1A5E 1A60 1A62 1A65-1A6C 1A73-1A7C 1A7F
    1AB0-1ABD 1B00-1B03 1B34 1B36-1B3A 1B3C 1B42 1B6B-1B73 1B80-1B81 1BA2-1BA5 1BA8-1BA9
    1BAB-1BAD 1BE6 1BE8-1BE9 1BED 1BEF-1BF1 1C2C-1C33 1C36-1C37 1CD0-1CD2 1CD4-1CE0
    1CE2-1CE8 1CED 1CF4 1CF8-1CF9 1DC0-1DF5 1DFC-1DFF 20D0-20DC 20E1 20E5-20F0 2CEF-2CF1
    2D7F 2DE0-2DFF 302A-302D 3099-309A A66F A674-A67D A69E-A69F A6F0-A6F1 A802 A806 A80B
    A825-A826 A8C4 A8E0-A8F1 A926-A92D A947-A951 A980-A982 A9B3 A9B6-A9B9 A9BC A9E5
    AA29-AA2E AA31-AA32 AA35-AA36 AA43 AA4C AA7C AAB0 AAB2-AAB4 AAB7-AAB8 AABE-AABF AAC1
    AAEC-AAED AAF6 ABE5 ABE8 ABED FB1E FE00-FE0F FE20-FE2F 101FD 102E0 10376-1037A
    10A01-10A03 10A05-10A06 10A0C-10A0F 10A38-10A3A 10A3F 10AE5-10AE6 11001 11038-11046
    1107F-11081 110B3-110B6 110B9-110BA 11100-11102 11127-1112B 1112D-11134 11173
    11180-11181 111B6-111BE 111CA-111CC 1122F-11231 11234 11236-11237 112DF 112E3-112EA
    11300-11301 1133C 11340 11366-1136C 11370-11374 114B3-114B8 114BA 114BF-114C0
    114C2-114C3 115B2-115B5 115BC-115BD 115BF-115C0 115DC-115DD 11633-1163A 1163D
    1163F-11640 116AB 116AD 116B0-116B5 116B7 1171D-1171F 11722-11725 11727-1172B
    16AF0-16AF4 16B30-16B36 16F8F-16F92 1BC9D-1BC9E 1D167-1D169 1D17B-1D182 1D185-1D18B
    1D1AA-1D1AD 1D242-1D244 1DA00-1DA36 1DA3B-1DA6C 1DA75 1DA84 1DA9B-1DA9F 1DAA1-1DAAF
    1E8D0-1E8D6 E0100-E01EF
    """
)
# Marks which are kept, and which NFD puts in canonical order with those around them.
KEPT_MARKS = _ranges(
    """
    8D4-8E1 1B44 1BAA 1BF2-1BF3 1DFB 302E-302F A953 A9C0 111C0 11235 1134D 11442 11446
    116B6 11C3F 1D165-1D166 1D16D-1D172 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024
    1E026-1E02A 1E944-1E94A
    """
)
# Dropped besides `MARKS` by the normalizer StripAccents.
COMBINING = _ranges(
    """
    488-489 8D4-8E1 903 93B 93E-940 949-94C 94E-94F 982-983 9BE-9C0 9C7-9C8 9CB-9CC 9D7
    A03 A3E-A40 A83 ABE-AC0 AC9 ACB-ACC B02-B03 B3E B40 B47-B48 B4B-B4C B57 BBE-BBF
    BC1-BC2 BC6-BC8 BCA-BCC BD7 C01-C03 C41-C44 C82-C83 CBE CC0-CC4 CC7-CC8 CCA-CCB
    CD5-CD6 D02-D03 D3E-D40 D46-D48 D4A-D4C D57 D82-D83 DCF-DD1 DD8-DDF DF2-DF3 F3E-F3F
    F7F 102B-102C 1031 1038 103B-103C 1056-1057 1062-1064 1067-106D 1083-1084 1087-108C
    108F 109A-109C 17B6 17BE-17C5 17C7-17C8 1885-1886 1923-1926 1929-192B 1930-1931
    1933-1938 1A19-1A1A 1A55 1A57 1A61 1A63-1A64 1A6D-1A72 1ABE 1B04 1B35 1B3B 1B3D-1B41
    1B43-1B44 1B82 1BA1 1BA6-1BA7 1BAA 1BE7 1BEA-1BEC 1BEE 1BF2-1BF3 1C24-1C2B 1C34-1C35
    1CE1 1CF2-1CF3 1DFB 20DD-20E0 20E2-20E4 302E-302F A670-A672 A823-A824 A827 A880-A881
    A8B4-A8C3 A8C5 A952-A953 A983 A9B4-A9B5 A9BA-A9BB A9BD-A9C0 AA2F-AA30 AA33-AA34 AA4D
    AA7B AA7D AAEB AAEE-AAEF AAF5 ABE3-ABE4 ABE6-ABE7 ABE9-ABEA ABEC 11000 11002 11082
    110B0-110B2 110B7-110B8 1112C 11182 111B3-111B5 111BF-111C0 1122C-1122E 11232-11233
    11235 1123E 112E0-112E2 11302-11303 1133E-1133F 11341-11344 11347-11348 1134B-1134D
    11357 11362-11363 11435-11446 114B0-114B2 114B9 114BB-114BE 114C1 115AF-115B1
    115B8-115BB 115BE 11630-11632 1163B-1163C 1163E 116AC 116AE-116AF 116B6 11720-11721
    11726 11C2F-11C36 11C38-11C3F 11C92-11CA7 11CA9-11CB6 16F51-16F7E 1D165-1D166
    1D16D-1D172 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 1E026-1E02A 1E944-1E94A
    """
)
# White space where the text is not cleaned.
WHITE_SPACE = _ranges("9-D 20 85 A0 1680 2000-200A 2028-2029 202F 205F 3000")
# Matched by `\w` in the pre-tokenizer Whitespace, and around a `single_word` token.
LETTERS = _ranges(
    """
    30-39 41-5A 5F 61-7A AA B5 BA C0-D6 D8-F6 F8-2C1 2C6-2D1 2E0-2E4 2EC 2EE 300-374
    376-377 37A-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5 3F7-481 483-52F 531-556 559
    560-588 591-5BD 5BF 5C1-5C2 5C4-5C5 5C7 5D0-5EA 5EF-5F2 610-61A 620-669 66E-6D3
    6D5-6DC 6DF-6E8 6EA-6FC 6FF 710-74A 74D-7B1 7C0-7F5 7FA 7FD 800-82D 840-85B 860-86A
    870-887 889-88E 897-8E1 8E3-963 966-96F 971-983 985-98C 98F-990 993-9A8 9AA-9B0 9B2
    9B6-9B9 9BC-9C4 9C7-9C8 9CB-9CE 9D7 9DC-9DD 9DF-9E3 9E6-9F1 9FC 9FE A01-A03 A05-A0A
    A0F-A10 A13-A28 A2A-A30 A32-A33 A35-A36 A38-A39 A3C A3E-A42 A47-A48 A4B-A4D A51
    A59-A5C A5E A66-A75 A81-A83 A85-A8D A8F-A91 A93-AA8 AAA-AB0 AB2-AB3 AB5-AB9 ABC-AC5
    AC7-AC9 ACB-ACD AD0 AE0-AE3 AE6-AEF AF9-AFF B01-B03 B05-B0C B0F-B10 B13-B28 B2A-B30
    B32-B33 B35-B39 B3C-B44 B47-B48 B4B-B4D B55-B57 B5C-B5D B5F-B63 B66-B6F B71 B82-B83
    B85-B8A B8E-B90 B92-B95 B99-B9A B9C B9E-B9F BA3-BA4 BA8-BAA BAE-BB9 BBE-BC2 BC6-BC8
    BCA-BCD BD0 BD7 BE6-BEF C00-C0C C0E-C10 C12-C28 C2A-C39 C3C-C44 C46-C48 C4A-C4D
    C55-C56 C58-C5A C5D C60-C63 C66-C6F C80-C83 C85-C8C C8E-C90 C92-CA8 CAA-CB3 CB5-CB9
    CBC-CC4 CC6-CC8 CCA-CCD CD5-CD6 CDD-CDE CE0-CE3 CE6-CEF CF1-CF3 D00-D0C D0E-D10
    D12-D44 D46-D48 D4A-D4E D54-D57 D5F-D63 D66-D6F D7A-D7F D81-D83 D85-D96 D9A-DB1
    DB3-DBB DBD DC0-DC6 DCA DCF-DD4 DD6 DD8-DDF DE6-DEF DF2-DF3 E01-E3A E40-E4E E50-E59
    E81-E82 E84 E86-E8A E8C-EA3 EA5 EA7-EBD EC0-EC4 EC6 EC8-ECE ED0-ED9 EDC-EDF F00
    F18-F19 F20-F29 F35 F37 F39 F3E-F47 F49-F6C F71-F84 F86-F97 F99-FBC FC6 1000-1049
    1050-109D 10A0-10C5 10C7 10CD 10D0-10FA 10FC-1248 124A-124D 1250-1256 1258 125A-125D
    1260-1288 128A-128D 1290-12B0 12B2-12B5 12B8-12BE 12C0 12C2-12C5 12C8-12D6 12D8-1310
    1312-1315 1318-135A 135D-135F 1380-138F 13A0-13F5 13F8-13FD 1401-166C 166F-167F
    1681-169A 16A0-16EA 16EE-16F8 1700-1715 171F-1734 1740-1753 1760-176C 176E-1770
    1772-1773 1780-17D3 17D7 17DC-17DD 17E0-17E9 180B-180D 180F-1819 1820-1878 1880-18AA
    18B0-18F5 1900-191E 1920-192B 1930-193B 1946-196D 1970-1974 1980-19AB 19B0-19C9
    19D0-19D9 1A00-1A1B 1A20-1A5E 1A60-1A7C 1A7F-1A89 1A90-1A99 1AA7 1AB0-1ACE 1B00-1B4C
    1B50-1B59 1B6B-1B73 1B80-1BF3 1C00-1C37 1C40-1C49 1C4D-1C7D 1C80-1C8A 1C90-1CBA
    1CBD-1CBF 1CD0-1CD2 1CD4-1CFA 1D00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59
    1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB
    1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 200C-200D 203F-2040 2054 2071 207F 2090-209C 20D0-20F0
    2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2139 213C-213F
    2145-2149 214E 2160-2188 24B6-24E9 2C00-2CE4 2CEB-2CF3 2D00-2D25 2D27 2D2D 2D30-2D67
    2D6F 2D7F-2D96 2DA0-2DA6 2DA8-2DAE 2DB0-2DB6 2DB8-2DBE 2DC0-2DC6 2DC8-2DCE 2DD0-2DD6
    2DD8-2DDE 2DE0-2DFF 2E2F 3005-3007 3021-302F 3031-3035 3038-303C 3041-3096 3099-309A
    309D-309F 30A1-30FA 30FC-30FF 3105-312F 3131-318E 31A0-31BF 31F0-31FF 3400-4DBF
    4E00-A48C A4D0-A4FD A500-A60C A610-A62B A640-A672 A674-A67D A67F-A6F1 A717-A71F
    A722-A788 A78B-A7CD A7D0-A7D1 A7D3 A7D5-A7DC A7F2-A827 A82C A840-A873 A880-A8C5
    A8D0-A8D9 A8E0-A8F7 A8FB A8FD-A92D A930-A953 A960-A97C A980-A9C0 A9CF-A9D9 A9E0-A9FE
    AA00-AA36 AA40-AA4D AA50-AA59 AA60-AA76 AA7A-AAC2 AADB-AADD AAE0-AAEF AAF2-AAF6
    AB01-AB06 AB09-AB0E AB11-AB16 AB20-AB26 AB28-AB2E AB30-AB5A AB5C-AB69 AB70-ABEA
    ABEC-ABED ABF0-ABF9 AC00-D7A3 D7B0-D7C6 D7CB-D7FB F900-FA6D FA70-FAD9 FB00-FB06
    FB13-FB17 FB1D-FB28 FB2A-FB36 FB38-FB3C FB3E FB40-FB41 FB43-FB44 FB46-FBB1 FBD3-FD3D
    FD50-FD8F FD92-FDC7 FDF0-FDFB FE00-FE0F FE20-FE2F FE33-FE34 FE4D-FE4F FE70-FE74
    FE76-FEFC FF10-FF19 FF21-FF3A FF3F FF41-FF5A FF66-FFBE FFC2-FFC7 FFCA-FFCF FFD2-FFD7
    FFDA-FFDC 10000-1000B 1000D-10026 10028-1003A 1003C-1003D 1003F-1004D 10050-1005D
    10080-100FA 10140-10174 101FD 10280-1029C 102A0-102D0 102E0 10300-1031F 1032D-1034A
    10350-1037A 10380-1039D 103A0-103C3 103C8-103CF 103D1-103D5 10400-1049D 104A0-104A9
    104B0-104D3 104D8-104FB 10500-10527 10530-10563 10570-1057A 1057C-1058A 1058C-10592
    10594-10595 10597-105A1 105A3-105B1 105B3-105B9 105BB-105BC 105C0-105F3 10600-10736
    10740-10755 10760-10767 10780-10785 10787-107B0 107B2-107BA 10800-10805 10808
    1080A-10835 10837-10838 1083C 1083F-10855 10860-10876 10880-1089E 108E0-108F2
    108F4-108F5 10900-10915 10920-10939 10980-109B7 109BE-109BF 10A00-10A03 10A05-10A06
    10A0C-10A13 10A15-10A17 10A19-10A35 10A38-10A3A 10A3F 10A60-10A7C 10A80-10A9C
    10AC0-10AC7 10AC9-10AE6 10B00-10B35 10B40-10B55 10B60-10B72 10B80-10B91 10C00-10C48
    10C80-10CB2 10CC0-10CF2 10D00-10D27 10D30-10D39 10D40-10D65 10D69-10D6D 10D6F-10D85
    10E80-10EA9 10EAB-10EAC 10EB0-10EB1 10EC2-10EC4 10EFC-10F1C 10F27 10F30-10F50
    10F70-10F85 10FB0-10FC4 10FE0-10FF6 11000-11046 11066-11075 1107F-110BA 110C2
    110D0-110E8 110F0-110F9 11100-11134 11136-1113F 11144-11147 11150-11173 11176
    11180-111C4 111C9-111CC 111CE-111DA 111DC 11200-11211 11213-11237 1123E-11241
    11280-11286 11288 1128A-1128D 1128F-1129D 1129F-112A8 112B0-112EA 112F0-112F9
    11300-11303 11305-1130C 1130F-11310 11313-11328 1132A-11330 11332-11333 11335-11339
    1133B-11344 11347-11348 1134B-1134D 11350 11357 1135D-11363 11366-1136C 11370-11374
    11380-11389 1138B 1138E 11390-113B5 113B7-113C0 113C2 113C5 113C7-113CA 113CC-113D3
    113E1-113E2 11400-1144A 11450-11459 1145E-11461 11480-114C5 114C7 114D0-114D9
    11580-115B5 115B8-115C0 115D8-115DD 11600-11640 11644 11650-11659 11680-116B8
    116C0-116C9 116D0-116E3 11700-1171A 1171D-1172B 11730-11739 11740-11746 11800-1183A
    118A0-118E9 118FF-11906 11909 1190C-11913 11915-11916 11918-11935 11937-11938
    1193B-11943 11950-11959 119A0-119A7 119AA-119D7 119DA-119E1 119E3-119E4 11A00-11A3E
    11A47 11A50-11A99 11A9D 11AB0-11AF8 11BC0-11BE0 11BF0-11BF9 11C00-11C08 11C0A-11C36
    11C38-11C40 11C50-11C59 11C72-11C8F 11C92-11CA7 11CA9-11CB6 11D00-11D06 11D08-11D09
    11D0B-11D36 11D3A 11D3C-11D3D 11D3F-11D47 11D50-11D59 11D60-11D65 11D67-11D68
    11D6A-11D8E 11D90-11D91 11D93-11D98 11DA0-11DA9 11EE0-11EF6 11F00-11F10 11F12-11F3A
    11F3E-11F42 11F50-11F5A 11FB0 12000-12399 12400-1246E 12480-12543 12F90-12FF0
    13000-1342F 13440-13455 13460-143FA 14400-14646 16100-16139 16800-16A38 16A40-16A5E
    16A60-16A69 16A70-16ABE 16AC0-16AC9 16AD0-16AED 16AF0-16AF4 16B00-16B36 16B40-16B43
    16B50-16B59 16B63-16B77 16B7D-16B8F 16D40-16D6C 16D70-16D79 16E40-16E7F 16F00-16F4A
    16F4F-16F87 16F8F-16F9F 16FE0-16FE1 16FE3-16FE4 16FF0-16FF1 17000-187F7 18800-18CD5
    18CFF-18D08 1AFF0-1AFF3 1AFF5-1AFFB 1AFFD-1AFFE 1B000-1B122 1B132 1B150-1B152 1B155
    1B164-1B167 1B170-1B2FB 1BC00-1BC6A 1BC70-1BC7C 1BC80-1BC88 1BC90-1BC99 1BC9D-1BC9E
    1CCF0-1CCF9 1CF00-1CF2D 1CF30-1CF46 1D165-1D169 1D16D-1D172 1D17B-1D182 1D185-1D18B
    1D1AA-1D1AD 1D242-1D244 1D400-1D454 1D456-1D49C 1D49E-1D49F 1D4A2 1D4A5-1D4A6
    1D4A9-1D4AC 1D4AE-1D4B9 1D4BB 1D4BD-1D4C3 1D4C5-1D505 1D507-1D50A 1D50D-1D514
    1D516-1D51C 1D51E-1D539 1D53B-1D53E 1D540-1D544 1D546 1D54A-1D550 1D552-1D6A5
    1D6A8-1D6C0 1D6C2-1D6DA 1D6DC-1D6FA 1D6FC-1D714 1D716-1D734 1D736-1D74E 1D750-1D76E
    1D770-1D788 1D78A-1D7A8 1D7AA-1D7C2 1D7C4-1D7CB 1D7CE-1D7FF 1DA00-1DA36 1DA3B-1DA6C
    1DA75 1DA84 1DA9B-1DA9F 1DAA1-1DAAF 1DF00-1DF1E 1DF25-1DF2A 1E000-1E006 1E008-1E018
    1E01B-1E021 1E023-1E024 1E026-1E02A 1E030-1E06D 1E08F 1E100-1E12C 1E130-1E13D
    1E140-1E149 1E14E 1E290-1E2AE 1E2C0-1E2F9 1E4D0-1E4F9 1E5D0-1E5FA 1E7E0-1E7E6
    1E7E8-1E7EB 1E7ED-1E7EE 1E7F0-1E7FE 1E800-1E8C4 1E8D0-1E8D6 1E900-1E94B 1E950-1E959
    1EE00-1EE03 1EE05-1EE1F 1EE21-1EE22 1EE24 1EE27 1EE29-1EE32 1EE34-1EE37 1EE39 1EE3B
    1EE42 1EE47 1EE49 1EE4B 1EE4D-1EE4F 1EE51-1EE52 1EE54 1EE57 1EE59 1EE5B 1EE5D 1EE5F
    1EE61-1EE62 1EE64 1EE67-1EE6A 1EE6C-1EE72 1EE74-1EE77 1EE79-1EE7C 1EE7E 1EE80-1EE89
    1EE8B-1EE9B 1EEA1-1EEA3 1EEA5-1EEA9 1EEAB-1EEBB 1F130-1F149 1F150-1F169 1F170-1F189
    1FBF0-1FBF9 20000-2A6DF 2A700-2B739 2B740-2B81D 2B820-2CEA1 2CEB0-2EBE0 2EBF0-2EE5D
    2F800-2FA1D 30000-3134A 31350-323AF E0100-E01EF
    """
)
# Split off by the pre-tokenizer Digits.
NUMBERS = _ranges(
    """
    30-39 B2-B3 B9 BC-BE 660-669 6F0-6F9 7C0-7C9 966-96F 9E6-9EF 9F4-9F9 A66-A6F AE6-AEF
    B66-B6F B72-B77 BE6-BF2 C66-C6F C78-C7E CE6-CEF D58-D5E D66-D78 DE6-DEF E50-E59
    ED0-ED9 F20-F33 1040-1049 1090-1099 1369-137C 16EE-16F0 17E0-17E9 17F0-17F9
    1810-1819 1946-194F 19D0-19DA 1A80-1A89 1A90-1A99 1B50-1B59 1BB0-1BB9 1C40-1C49
    1C50-1C59 2070 2074-2079 2080-2089 2150-2182 2185-2189 2460-249B 24EA-24FF 2776-2793
    2CFD 3007 3021-3029 3038-303A 3192-3195 3220-3229 3248-324F 3251-325F 3280-3289
    32B1-32BF A620-A629 A6E6-A6EF A830-A835 A8D0-A8D9 A900-A909 A9D0-A9D9 A9F0-A9F9
    AA50-AA59 ABF0-ABF9 FF10-FF19 10107-10133 10140-10178 1018A-1018B 102E1-102FB
    10320-10323 10341 1034A 103D1-103D5 104A0-104A9 10858-1085F 10879-1087F 108A7-108AF
    108FB-108FF 10916-1091B 109BC-109BD 109C0-109CF 109D2-109FF 10A40-10A48 10A7D-10A7E
    10A9D-10A9F 10AEB-10AEF 10B58-10B5F 10B78-10B7F 10BA9-10BAF 10CFA-10CFF 10D30-10D39
    10D40-10D49 10E60-10E7E 10F1D-10F26 10F51-10F54 10FC5-10FCB 11052-1106F 110F0-110F9
    11136-1113F 111D0-111D9 111E1-111F4 112F0-112F9 11450-11459 114D0-114D9 11650-11659
    116C0-116C9 116D0-116E3 11730-1173B 118E0-118F2 11950-11959 11BF0-11BF9 11C50-11C6C
    11D50-11D59 11DA0-11DA9 11DE0-11DE9 11F50-11F59 11FC0-11FD4 12400-1246E 16130-16139
    16A60-16A69 16AC0-16AC9 16B50-16B59 16B5B-16B61 16D70-16D79 16E80-16E96 16FF4-16FF6
    1CCF0-1CCF9 1D2C0-1D2D3 1D2E0-1D2F3 1D360-1D378 1D7CE-1D7FF 1E140-1E149 1E2F0-1E2F9
    1E4F0-1E4F9 1E5F1-1E5FA 1E8C7-1E8CF 1E950-1E959 1EC71-1ECAB 1ECAD-1ECAF 1ECB1-1ECB4
    1ED01-1ED2D 1ED2F-1ED3D 1F100-1F10C 1FBF0-1FBF9
    """
)
# Characters which newer Unicode versions (so newer Pythons) decompose and the reference
# does not.
NOT_DECOMPOSED = _ranges(
    """
    105C9 105E4 11383 11385 1138E 11391 113C5 113C7-113C8 11938 16121-16128 16D68-16D6A
    """
)
# Characters, and the lower case of the first of them, which the reference lower-cases
# and the oldest supported Python, with Unicode 13, does not know.
LOWER_ADDED = """
    1C89:1C8A 2C2F:2C5F A7C0:A7C1 A7CB:264 A7CC:A7CD A7CE:A7CF A7D0:A7D1 A7D2:A7D3
    A7D4:A7D5 A7D6:A7D7 A7D8:A7D9 A7DA:A7DB A7DC:19B 10570-1057A:10597
    1057C-1058A:105A3 1058C-10592:105B3 10594-10595:105BB 10D50-10D65:10D70
    16EA0-16EB8:16EBB
"""

# Newer compatibility decompositions (NFKD), which the reference does not know.
NOT_NFKD = _ranges(
    "32FF A7F1-A7F4 AB69 10781-10785 10787-107B0 107B2-107BA 11938 1CCD6-1CCF9 1F16C "
    "1FBF0-1FBF9 1E030-1E06D"
)
# No text holds these: the reference drops them, and where it does not, `Splitting` maps
# them to the last. They stand for added tokens, one each, ...
FIRST_TOKEN, MOST_TOKENS = 0xF0000, 0xFFFE
# ... and for each character of a word that is too long.
TOO_LONG = 0x10FFFD

# How a character is mapped. The lower KIND_BITS of a table entry hold the kind.
# A MARK, one of `KEPT_MARKS`, occurs only in expansions. From OTHER on are the kinds of
# words apart from each other, of pre-tokenizers other than BERT's.
WORD, ALONE, SPACE, GONE, SEVERAL, MARK, OTHER, DIGIT, OTHER_DIGIT = range(9)
KIND_BITS = 4
PAGE_BITS = 8
_CODES = 0x110000
MOST_OUTPUTS = 3
MOST_DECOMPOSED = 4  # characters, accents among them
# Blocks which neither decompose nor have case are skipped, for speed.
CASED_OR_COMPOSED = (
    (0, 0x33FF),
    (0xA600, 0xD7FF),
    (0xF900, 0x11CFF),
    (0x16A00, 0x16FFF),
    (0x1BC00, 0x1BCFF),
    (0x1D100, 0x1E9FF),
    (0x1EE00, 0x1FBFF),
    (0x2F800, 0x2FA1F),
    (0xE0100, 0xE01EF),
)


@dataclasses.dataclass(frozen=True)
class CharacterTable:
    """The mapping of all 0x110000 code points; equal pages of 256 are stored once.

    `entries[pages[code >> 8] * 256 + (code & 255)]` is `difference << 3 | kind`: the
    output is `code + difference`. If the kind is SEVERAL, the difference is a row of
    `expansions`, whose cells are `code << 3 | kind`, or -1 for none.

    Args:
        pages: int32 [0x1100].
        entries: int32 [distinct pages * 256].
        expansions: int32 [rows, 3], or as many as the longest needs.
    """

    pages: np.ndarray
    entries: np.ndarray
    expansions: np.ndarray


@dataclasses.dataclass(frozen=True)
class MarkTable:
    """The decompositions of marks and of characters with marks, accents included.

    Args:
        codes: int32 [rows], ascending.
        cells: int32 [rows, 4], `code << 3 | kind` of each part, -1 for none; accents
            have the kind GONE.
        classes: int32 [rows, 4], the canonical combining class of each part.
    """

    codes: np.ndarray
    cells: np.ndarray
    classes: np.ndarray


def normalized(texts: list[str], *, lowercase: bool, strip_accents: bool) -> list[str]:
    """Return what replaces each of some characters, up to three characters each."""
    joined = _APART.join(texts)  # one string, since Python's loop is slower
    if strip_accents:
        joined = joined.translate(_decompositions()).translate(_WITHOUT_MARKS)
    if lowercase:  # as `lowered`, since no sigma ends a word of several letters
        joined = joined.translate(_LOWER_ADDED_CODES).lower()
    return joined.split(_APART) if texts else []


@functools.cache
def _decompositions() -> dict[int, str]:
    """Return the code points that decompose, and into what."""
    texts = _cased_or_composed()
    parts = unicodedata.normalize("NFD", _APART.join(texts)).split(_APART)
    return {
        ord(text): part
        for text, part in zip(texts, parts, strict=True)
        if part != text and text not in _NOT_DECOMPOSED
    }


@functools.cache
def _cased_or_composed() -> list[str]:
    ranges = (range(first, last + 1) for first, last in CASED_OR_COMPOSED)
    return [chr(code) for codes in ranges for code in codes]


def _changed_codes(*, lowercase: bool, strip_accents: bool) -> list[int]:
    """Return the code points that may not stay as they are, ascending."""
    found: set[int] = set()
    if strip_accents:
        found |= _decompositions().keys() | set(map(ord, _MARKS | _KEPT_MARKS))
    if lowercase:
        texts = _cased_or_composed()
        lower = _APART.join(texts).lower().split(_APART)
        found |= {ord(a) for a, b in zip(texts, lower, strict=True) if a != b}
        found |= _LOWER_ADDED_CODES.keys()
    codes = np.array(sorted(found), np.int32)
    cased = [(first <= codes) & (codes <= last) for first, last in CASED_OR_COMPOSED]
    kept: list[int] = codes[np.any(cased, axis=0)].tolist() if found else []
    return kept


def lowered(text: str) -> str:
    """Return a text in lower case, each character by itself, as the reference does."""
    return "".join(_LOWER_ADDED.get(c) or c.lower() for c in text)


@functools.cache
def character_table(
    *, lowercase: bool, strip_accents: bool, tokenize_chinese_chars: bool
) -> CharacterTable:
    """Return the table of one kind of model; built once for each."""
    kinds = _kinds(DELETED)
    if strip_accents:
        kinds[[ord(character) for character in _KEPT_MARKS]] = MARK

    codes = _changed_codes(lowercase=lowercase, strip_accents=strip_accents)
    same = np.isin(kinds[codes], (SPACE, GONE)).tolist()
    changed = [code for code, stays in zip(codes, same, strict=True) if not stays]
    outputs = normalized(
        list(map(chr, changed)), lowercase=lowercase, strip_accents=strip_accents
    )
    replaced = dict(zip(changed, outputs, strict=True))

    def cells_of(code: int) -> list[int]:
        return [c << KIND_BITS | int(kinds[c]) for c in map(ord, replaced[code])]

    entries, expansions = filled(kinds, changed, cells_of)
    if tokenize_chinese_chars:  # the kind of the original character, not of the output
        for first, last in CJK:
            entries[first : last + 1] &= -1 << KIND_BITS
            entries[first : last + 1] |= ALONE
    return paged(entries, expansions)


def filled(
    kinds: np.ndarray, codes: Iterable[int], cells_of: Callable[[int], list[int]]
) -> tuple[np.ndarray, list[list[int]]]:
    """Return the entries of all code points, and the expansions.

    `cells_of` gives the cells of each of `codes`; the others stay as they are.
    """
    entries = kinds.copy()
    expansions: list[list[int]] = []
    for code in codes:
        cells = cells_of(code)
        kind = cells[0] & (1 << KIND_BITS) - 1 if cells else GONE
        if len(cells) == 1 and kind != MARK:
            entries[code] = ((cells[0] >> KIND_BITS) - code) << KIND_BITS | kind
        elif cells:
            entries[code] = len(expansions) << KIND_BITS | SEVERAL
            expansions.append(cells)
        else:
            entries[code] = GONE
    return entries, expansions


def paged(entries: np.ndarray, expansions: list[list[int]]) -> CharacterTable:
    """Return the table of entries and expansions."""
    numbers: dict[bytes, int] = {}
    rows = entries.reshape(-1, 1 << PAGE_BITS)
    pages = [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows]
    most = max([MOST_OUTPUTS, *map(len, expansions)])
    padded = [cells + [-1] * (most - len(cells)) for cells in expansions]
    return CharacterTable(
        pages=np.array(pages, np.int32),
        entries=np.frombuffer(b"".join(numbers), np.int32),
        expansions=np.array(padded, np.int32).reshape(-1, most),
    )


@functools.cache
def mark_table(*, lowercase: bool) -> MarkTable:
    """Return the table that canonical order needs; built once for each."""
    return marks_of(_kinds(MARKS), lowercase=lowercase)


def marks_of(kinds: np.ndarray, *, lowercase: bool) -> MarkTable:
    """Return the table that canonical order needs, with the kinds of characters."""
    codes, cells, classes = [], [], []
    for code in _changed_codes(lowercase=False, strip_accents=True):
        text = _decompositions().get(code, chr(code))
        if _COMBINING.keys().isdisjoint(text):  # such as a syllable in Hangul
            continue
        orders = [_COMBINING.get(part, 0) for part in text]
        if not any(orders) and _MARKS.isdisjoint(text):
            continue
        parts = []
        for part in text:
            if lowercase and part not in _MARKS:
                part = _LOWER_ADDED.get(part) or part.lower()
            parts.append(ord(part) << KIND_BITS | int(kinds[ord(part)]))
        none = MOST_DECOMPOSED - len(parts)
        codes.append(code)
        cells.append(parts + [-1] * none)
        classes.append(orders + [0] * none)
    return MarkTable(*(np.array(a, np.int32) for a in (codes, cells, classes)))


def _kinds(gone: Ranges) -> np.ndarray:
    """Return the kind of each code point, int32 [0x110000]."""
    kinds = np.full(_CODES, WORD, np.int32)
    for kind, ranges in ((ALONE, PUNCTUATION), (SPACE, SPACES), (GONE, gone)):
        for first, last in ranges:
            kinds[first : last + 1] = kind
    return kinds


def as_set(ranges: Ranges) -> set[int]:
    """Return the code points of ranges."""
    return {code for first, last in ranges for code in range(first, last + 1)}


def _characters(ranges: Ranges) -> frozenset[str]:
    return frozenset(map(chr, as_set(ranges)))


def over_marks_of(text: str, end: int) -> int:
    """Return an end in a text after the combining accents that follow it."""
    while end < len(text) and text[end] in _MARKS:
        end += 1
    return end


_MARKS = _characters(MARKS)
_KEPT_MARKS = _characters(KEPT_MARKS)
_NOT_DECOMPOSED = _characters(NOT_DECOMPOSED)
_LOWER_ADDED = {
    chr(code): chr(int(lower, 16) + code - first)
    for codes, lower in (word.split(":") for word in LOWER_ADDED.split())
    for first, last in _ranges(codes)
    for code in range(first, last + 1)
}
_LOWER_ADDED_CODES = {ord(upper): lower for upper, lower in _LOWER_ADDED.items()}
_WITHOUT_MARKS = dict.fromkeys(map(ord, _MARKS))
# The combining classes of the marks that the reference knows.
_COMBINING = {mark: unicodedata.combining(mark) for mark in _MARKS | _KEPT_MARKS}
# Between characters: no character, without case and without a decomposition.
_APART = chr(_CODES - 1)
