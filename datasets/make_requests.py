#!/usr/bin/env python3
"""Writes datasets/requests/{train,dev}/{seq.in,seq.out,label}: synthetic requests to an assistant in a phone. A line of
each file is one request: its words between spaces, their tags (IOB2), and what is wanted.

What decides is what stands around a word, not the word:
- Selby and Rowan are places, people, bands and parts of songs; May, June and April are months and people;
- a seven is a time, an amount, a bus or part of a duration; minutes are part of a time or a duration, or a unit;
- a place is where the weather is, where a way begins or where it ends, a unit is converted from or to, in any order;
- a task or a message is one slot whatever is in it: in "tell Mira play Grey Lantern at seven" all behind the name is
  the message, and neither the song nor the time is a slot.

Of every open class of words (names, places, words of titles, things) the held-out requests have some that training
never has. Every request, name, song and band is made up here.

usage: python3 datasets/make_requests.py   (no dependencies; the same bytes every time)
"""
import os
import random
import re

SEED, TRAIN, DEV = 23, 1960, 400

# Who is a person as well as a place, and what is in songs and bands, too.
BOTH = "Arden Ashby Carrow Elmsley Harlow Kendal Linden Marlow Rowan Selby Tilney Weston".split()
# Words of open classes. The last quarter of each list occurs in held-out requests alone.
OPEN = {
    "first": BOTH + """Agnes April August Bela Clara Dario Edith Felix Greta Hugo Irma Jonas June Karla Leon May Mira
        Nils Olga Rosa Stefan Tilda Viktor Anton Brigid Casper Dora Emil Frieda Gustav Hanne Ivo Jette Rory
        Sanne""".split(),
    "last": """Abernal Brandvik Corvell Dunmore Estrell Farrow Gilmarsh Hartung Ilvane Jorvik Kestrel Lindholm Norrby
        Pellam Quist Rossiter Silvane Torvald Umber Vantongeren""".split(),
    "stem": """Aller Bram Cald Dorn East Fen Grim Hather Iver Kirk Lang Mer North Over Penn Rother Stan Thorn Under Wex
        Yar Brock Cran Dunn Eller Hazel Rush Wither""".split(),
    "describing": """Amber Blue Broken Crooked Distant Early Endless Frozen Golden Grey Hollow Little Lonely Paper Quiet
        Restless Second Silver Velvet Yellow Borrowed Hidden Pale Scarlet Sudden Wandering Wooden""".split(),
    "thing": """Avenue Balloon Candle Dancer Engine Feather Garden Harbour Island Kitchen Lantern Mirror Night Orchard
        Piano River Shadow Summer Train Winter Anchor Compass Meadow Ribbon Stairs Thunder Window""".split(),
    "folk": """Brothers Cousins Drifters Foxes Gamblers Horses Keepers Lions Miners Owls Pilots Quartet Sisters
        Strangers Beekeepers Travellers Herons Tailors Welders""".split(),
    "errand": """water the plants|pay the rent|feed the cat|empty the bins|take my tablets|renew the passport|book a
        table|return the library books|charge the camera|defrost the soup|send the invoice|sign the form|iron my
        shirt|back up the photos|clean the oven|oil the gate|walk the dog|collect the parcel|sort the post|measure the
        shelf|order firewood|repot the fern|sweep the chimney|vote""".split("|"),
    "news": """I am late|we are almost there|the keys are under the mat|happy birthday|I got the job|the heating is
        broken|lunch is ready|I forgot my bag|the match is off|the doctor was pleased|we need more milk|good luck|I
        miss you|the baby is asleep|the car has a flat tyre|my phone was dead|the roof leaks again|we won|the parcel
        has come|the shop was shut""".split("|"),
    "food": "rice flour sugar butter milk apples onions cheese barley honey lentils plums".split(),
}

RULES = {
    # Numbers.
    "few": "two|three|four|five|six|seven|eight|nine|ten|twelve",
    "digits": "2|3|4|5|6|7|8|9|10|12|15|18|20|25|30|40|45|50|60|75|90|100",
    "tens": "fifteen|twenty|twenty five|thirty|forty|forty five|fifty|sixty|ninety",
    "count": "<few>|<digits>|<digits>|<tens>",
    # When.
    "hour": "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve",
    "clock": "1|2|3|4|5|6|7|8|9|10|11|12",
    "minute": "05|10|15|20|30|40|45|50",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "month": "January|February|March|April|May|June|July|August|October|December",
    "nth": "first|second|third|fourth|fifth|seventh|tenth|twelfth|twentieth|2nd|3rd|5th|7th|11th|15th|21st|30th",
    "time": """<hour>|<clock>|<clock>:<minute>|<clock>:<minute>|half past <hour>|quarter [to|past] <hour>|<hour> o'clock
        |<few> minutes [to|past] <hour>|noon|midnight|<clock> [am|pm]|<hour> [in the morning|in the evening|at night]
        |<hour> <tens>|sunrise""",
    "date": """today|tomorrow|tonight|<day>|<day>|next <day>|this <day>|the <nth> of <month>|<month> <nth>|the <nth>
        |tomorrow [morning|evening|night]|<day> [morning|afternoon|evening]|the day after tomorrow|this weekend
        |next week|<few> days from now|the [first|second|last] <day> [of|in] <month>""",
    "duration": """<count> minutes|<count> minutes|<count> seconds|an hour|half an hour|<few> hours|an hour and a half
        |a quarter of an hour|<few> and a half hours""",
    "recurrence": """every day|every <day>|every <day>|every other <day>|on weekdays|daily|each morning|every evening
        |<day>s|twice a week|once a month|every <few> hours
        |every [Monday|Tuesday|Friday] and [Thursday|Saturday|Sunday]""",
    # Who and where.
    "person": """<first>|<first>|<first>|<first>|<first> <last>|<first> <last>|aunt <first>|uncle <first>|doctor <last>
        |mum|my [brother|sister|boss|neighbour]|Mrs <last>|<both> <last>|<both>""",
    "town": "<both>|<both>|<stem><ending>|<stem><ending>|<stem><ending>|<far> <stem><ending>|<stem><ending> <water>",
    "ending": "by|ton|wick|mere|haven|ford|ley",
    "far": "Upper|Lower|Old|New|Saint",
    "water": "on Sea|Bay|Hill",
    "spot": """the [station|airport|library|town hall|harbour|old mill|dentist|swimming pool|market]|<first>'s house
        |<last> [Street|Road|Square]|<thing> [Street|Road|Lane]|[First|Second|Fifth|Seventh|Tenth] Street
        |number <count> <thing> [Road|Lane]|work|home|my office|the <last> [Museum|Hotel]""",
    "place": "<town>|<town>|<town>|<town>|the [north|mountains|valley]",
    "origin": "<town>|<town>|<spot>|<spot>|here",
    "destination": "<town>|<town>|<spot>|<spot>",
    "mode": """on foot|on foot|by bus|by bike|by car|by train|by ferry|with the tram|walking|cycling""",
    "line": """<digits>|<digits>|<few>|number <digits>|number <digits>|number <few>|<digits> [A|B]|[N|X]<digits>
        |[red|green|blue] line|<thing> line|<both> express|night bus""",
    # Music.
    "song": """<describing> <thing>|<describing> <thing>|<describing> <thing>s|The <thing>|<thing> of <town>
        |[Leave|Follow|Burn|Remember] the <thing>|[Waiting|Dancing|Rain] [in|on|for] <town>|<hour> in the Morning
        |[Every|Another|Last] <day>|<first>|<first> and the <thing>|Call Me <day>|<few> <thing>s|<few> Minutes
        |Tomorrow Again|[Tell|Wake|Take] Me [Home|Tomorrow|Twice]|<month> in <town>""",
    "artist": """The <describing> <folk>|The <describing> <folk>|The <thing> <folk>|<first> <last>|<first> <last>
        |<first> <last>|<first> and the <folk>|<both>|<both>|The <town> <folk>|<describing> <thing>|<few> <folk>""",
    "genre": """jazz|folk|blues|reggae|rock|techno|opera|choir music|piano music|slow <style>|quiet <style>|old <style>
        |<style> from the north|winter songs|songs about rain|music for running|music to sleep|brass bands""",
    "style": "jazz|folk|blues|soul|guitar music|waltzes",
    # Units.
    "length": "miles|kilometres|metres|feet|yards|inches|centimetres|nautical miles",
    "weight": "pounds|ounces|grams|kilos|stone|tons|metric tons",
    "volume": "cups|litres|pints|gallons|tablespoons|cubic inches|fluid ounces",
    "area": "acres|hectares|square feet|square metres|square miles",
    "lapse": "minutes|hours|seconds|days|weeks",
    "speed": "miles an hour|kilometres an hour|knots|metres a second",
    "amount": """<count>|<count>|<count>|<digits>.5|<few> and a half|a hundred|a couple of|a dozen|<few> hundred
        |<tens> <few>""",
    # What is said or to be done. No task ends with a time of its own, as "at six" behind it belongs to the reminder.
    "task": """<errand>|<errand>|<errand>|<errand>|call <person>|call <person> about the <object>|buy <food>
        |buy <few> [pounds|litres|kilos] of <food>|text <person>|catch the <line> to <town>|book a train to <town>
        |pick <person> up from <spot>|play <song> for <person>|check the weather in <town>|set an alarm
        |meet <person> in <town>|take the <object> to <person>|ask <person> how far it is to <town>|practise <song>
        |send <person> the <object>|<errand> and <errand>|fix the <object>|practise [chess|a duet] with <person>""",
    "object": "bike|ladder|tent|drill|recipe|pictures|<describing> lamp|spare key",
    "message": "<statement>|<statement>|<statement>|<order>",
    "statement": """<news>|<news>|<news> and <news>|I will be [there|back|home] at <time>
        |I will be [there|back|home] <date>|I am in <town>|I am on the <line>|dinner is at <time>|<person> is ill
        |<person> says hello|the <line> is late|I walk from <town> to <town>|the <object> is <amount> <length> long
        |it takes me <duration>|we play <song> <date>""",
    "order": """please buy <food>|can we meet in <town> <date>|can we meet at <time>|play <song> at <time>
        |wake me at <time>|what is the weather like in <town>|are you free <date> at <time>|remember the <object>
        |ask <person> first|call me at <time>|play something by <artist>|how many <length> are <count> <length>""",
    "question": """we need more milk|<person> is ill|dinner is at <time>|the <line> is late|<person> is free <date>
        |it rains in <town>|they play <song>|the <object> is at <spot>|it takes <duration> from <town>""",
}

START = "[|||||||please|can you|could you|hey|ok now|I want you to]"
END = "[||||||||please|thanks|if you can]"
WHEN = """[at {time}|at {time}|{date} at {time}|at {time} {date}|{date}|on {date:day}|in {duration}|{recurrence}
    |{recurrence} at {time}|at {time} {recurrence}]"""
WAY = "[||{mode}|{mode}]"
# In f-strings, so that a slot has two braces here; a slot with a colon takes its words from the rule behind that.
REQUESTS = {
    "alarm": f"""
        {START} [wake me|wake me up|get me up] {WHEN} {END}
        |{START} set [an alarm|the alarm] [|for {{person}}] {WHEN} {END}
        |[an alarm|alarm] [for {{time}} {{date}}|for {{date}} {{time}}|{{date}} {{time}}|{{recurrence}} {{time}}] {END}
        |alarm {{time}} {END}
        |{{date}} I [have to|must] be up [at|by|before] {{time}}|[do not|don't] wake me [before {{time}}|{{date}}]
        |{START} [move|change] [my|the] {{time}} alarm to {{time}} {END}
        |{START} [cancel|delete] the [{{time}}|{{date}}] alarm {END}|let me sleep [for|another] {{duration}} {END}
        |[a timer|timer] for {{duration}}|{{duration}} on the timer {END}|{START} set a timer for {{duration}} {END}
        |ring [at {{time}}|in {{duration}}]|{{recurrence}} wake me at {{time}}
        |{START} [stop the alarm|turn the alarm off|show my alarms|cancel all alarms|snooze] {END}|is my alarm on""",
    "reminder": f"""
        {START} remind me to {{task}} [{WHEN}|] {END}|{START} remind me {WHEN} to {{task}} {END}
        |{START} remind me {WHEN} that I [have to|must] {{task}}|{WHEN} remind me to {{task}} {END}
        |don't let me forget to {{task}} [{WHEN}|]|{{task}} {WHEN} put it on my list
        |{START} [add|put] {{task}} [to|on] my list [for {{date}}|for {{time}}|] {END}
        |I [have to|must] {{task}} {WHEN} remind me|note for {{date}} {{task}}
        |{START} make a note to {{task}} {WHEN} {END}|remind {{person}} to {{task}} {WHEN}
        |what do I have to do [{{date}}|at {{time}}|]|have I got anything [{{date}}|at {{time}}]
        |{START} [show|read|clear] my [reminders|list] {END}|{START} forget the last reminder""",
    "music": f"""
        {START} play {{song}} [by {{artist}}|by {{artist}}|] {END}|{START} play {{artist}} {END}
        |{START} put on {{song}} {END}|{START} play [|some|a bit of|{{duration}} of] {{genre}} {END}
        |{START} play something [by|from] {{artist}} {END}|[I want|I'd like] to hear {{song}} [by {{artist}}|]
        |[I want|I'd like] to hear [some {{genre}}|{{artist}}] [at {{time}}|{{date}}|]
        |[who sings|who wrote|what is] {{song}}|{START} add {{song}} [by {{artist}}|] to my {{genre}} [list|mix]
        |{START} play {{genre}} for {{duration}}|[the new one|the first song] by {{artist}} {END}
        |{{song}} by {{artist}} {END}|{START} play {{song}} [and then|before] {{song}}
        |anything by {{artist}} but not {{song}}|{START} play {{artist}} {{song}}
        |is {{artist}} playing in {{place}} {{date}}|wake me up is a song by {{artist}} play it
        |{START} [next song|turn it up|turn it down|play it again|stop the music|play the last one] {END}
        |what song is this""",
    "weather": f"""
        [what is|what's] the weather [like|] [in {{place}}|in {{place}} {{date}}|{{date}} in {{place}}|{{date}}]
        |[will it|is it going to] [rain|snow|freeze] [in {{place}} {{date}}|{{date}}|{{date}} at {{time}}|in {{place}}]
        |[will it|is it going to] [rain|snow|freeze] at {{time}} [{{date}}|in {{place}}]
        |{START} [the|give me the] forecast [for|in] {{place}} [{{date}}|for the next {{duration}}|]
        |{{date}} in {{place}} [sun or rain|any rain]
        |[do I need|should I take] [an umbrella|a coat] [{{date}}|in {{place}}|in {{place}} {{date}}|for {{place}}]
        |how [cold|warm|windy] [is it|will it be] in {{place}} [{{date}}|at {{time}}|]
        |is {{place}} [sunny|wet|warmer] {{date}}|{{place}} weather {{date}}
        |when [does the sun set|will the rain stop] in {{place}} [{{date}}|]
        |[{{date}} I am|I will be] in {{place}} [|{{date}}] what should I wear
        |is it [colder|warmer] in {{place}} than in {{place}}
        |[is it raining|will the rain last|how cold is it outside|any storms coming] [now|] {END}""",
    "message": f"""
        {START} tell {{person}} {{message}}|{START} tell {{person}} that {{message:statement}}
        |{START} text {{person}} {{message}}|{START} let {{person}} know [that|] {{message:statement}}
        |{START} [send|text] {{message}} to {{person}} {END}
        |{START} [send|write] {{person}} a message saying {{message}}|answer {{person}} with {{message}}
        |[{{date}} at {{time}}|at {{time}}|in {{duration}}] tell {{person}} {{message}}
        |message for {{person}} {{message}}|{START} ask {{person}} [and {{person}}|] [if|whether] {{message:question}}
        |{{message}} send that to {{person}} {END}|say {{message}} to {{person}}
        |{START} write to {{person}} [and {{person}}|] {{message}}|has {{person}} written [{{date}}|]
        |did {{person}} write [to me|] [{{date}}|]|any [news|messages] from {{person}} [{{date}}|]
        |{START} [read|show] [me|] the message from {{person}}
        |{START} [read my messages|show new messages|send it|delete that message|write that again] {END}""",
    "route": f"""
        how do I get [from {{origin}}|] to {{destination}} {WAY}|how do I get to {{destination}} from {{origin}} {WAY}
        |{START} [take me|navigate|show me the way] to {{destination}} {WAY} {END}
        |from {{origin}} to {{destination}} {WAY}
        |[how far|how many miles] is it [from {{origin}}|] to {{destination}} {WAY}
        |is {{destination}} far from {{origin}} {WAY}
        |how long [do I need|does it take] {WAY} [from {{origin}}|] to {{destination}} {WAY}
        |the [fastest|shortest|best] way to {{destination}} [from {{origin}}|] {WAY}
        |I am [at|in] {{origin}} and want to go to {{destination}}
        |I [have to|must] be [in|at] {{destination}} [by|at] {{time}} [when do I leave|which way]
        |{{destination}} from {{origin}} {{mode}}|can I [walk|cycle] to {{destination}} in {{duration}}
        |{{mode}} to {{destination}}|go to {{destination}} and then to {{destination}}
        |to {{destination}} I want to go {{mode}}|what is the way back to {{destination}} [{{date}}|]
        |{START} [turn round|avoid the motorway|stop here|show the map|find another way] {END}|where am I""",
    "convert": f"""
        {START} convert {{amount}} {{from_unit}} [to|into] {{to_unit}} {END}
        |[what is|what's|how much is] {{amount}} {{from_unit}} in {{to_unit}}
        |how many {{to_unit}} [are|are there|do I have] in {{amount}} {{from_unit}}
        |how many {{to_unit}} is {{amount}} {{from_unit}}
        |{{amount}} {{from_unit}} [in|to|makes how many|is how many] {{to_unit}}
        |{{to_unit}} [in|for] {{amount}} {{from_unit}}|{START} [turn|change] {{amount}} {{from_unit}} into {{to_unit}}
        |convert to {{to_unit}} {{amount}} {{from_unit}}
        |I have {{amount}} {{from_unit}} of <food> how many {{to_unit}} is that
        |in {{to_unit}} what is {{amount}} {{from_unit}}
        |it is {{amount}} {{from_unit}} to <town> what is that in {{to_unit}}
        |my <object> is {{amount}} {{from_unit}} give me that in {{to_unit}}
        |[is|are] {{amount}} {{from_unit}} more than {{amount}} {{from_unit}}
        |{START} [convert that back|do that in the other direction|show the units that you know] {END}""",
    "timetable": f"""
        when does [the|bus|the bus] {{line}} [leave|go|come] [|from {{origin}}|to {{destination}}]
        |when does the {{line}} [leave|go|come] from {{origin}} [to|for] {{destination}}
        |when is the next {{line}} [to {{destination}}|from {{origin}}|]
        |next {{line}} [to|for] {{destination}} [after {{time}}|{{date}}|]
        |which [bus|train] goes [from {{origin}}|] to {{destination}} [at {{time}}|{{date}}|]
        |does the {{line}} [stop at|go to] {{destination}} [{{date}}|]
        |is the {{line}} [late|on time|running] [{{date}}|]
        |the last {{line}} [{{date}}|to {{destination}}|from {{origin}} {{date}}]
        |is there a [bus|train] to {{destination}} [at|after|before] {{time}} [{{date}}|]|{{line}} from {{origin}} when
        |does the {{line}} run [{{recurrence}}|{{date}}|after {{time}}]
        |I want the {{line}} to {{destination}} [at|after] {{time}}|{{date}} the first {{line}} from {{origin}}
        |how often does the {{line}} go to {{destination}}|[{{line}}|the {{line}}] at {{time}} is it late
        |{START} [show the timetable|show the next bus|look up my bus|tell me when the bus comes] {END}
        |is my bus late""",
}
UNITS = "length weight volume area lapse speed".split()


class Writer:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.held_out = False

    def pick(self, among):
        return among[self.rng.randrange(len(among))]

    def word(self, name):
        """A word of an open class."""
        among = OPEN[name]
        seen = len(among) * 3 // 4
        return " ".join(self.pick(among[seen:] if self.held_out and self.rng.random() < 0.5 else among[:seen]).split())

    def rule(self, found):
        name = found[1]
        return self.pick(BOTH) if name == "both" else self.word(name) if name in OPEN else f"[{RULES[name]}]"

    def expand(self, text):
        """Text in which of each `[one|another]` one is chosen and each `<rule>` followed; slots stay."""
        while "[" in text or "<" in text:
            while "[" in text:
                text = re.sub(r"\[([^][]*)\]", lambda found: self.pick(found[1].split("|")), text)
            text = re.sub(r"<(\w+)>", self.rule, text)
        return text

    def request(self, intent):
        """The words of a request and their tags; nothing if two of its slots have the same words."""
        words, tags, fillers, unit = [], [], [], self.pick(UNITS)
        for part in self.expand(f"[{REQUESTS[intent]}]").split():
            slot, _, rule = part.strip("{}").partition(":")
            if not part.startswith("{"):
                words.append(part)
                tags.append("O")
                continue
            filler = self.expand(f"<{rule or (unit if slot.endswith('_unit') else slot)}>").split()
            if filler in fillers:
                return [], []
            fillers.append(filler)
            words += filler
            tags += ["B-" + slot] + ["I-" + slot] * (len(filler) - 1)
        if words and self.rng.random() < 0.5:
            words = [word.lower() for word in words]
        elif words and self.rng.random() < 0.5:
            words[0] = words[0][0].upper() + words[0][1:]
        return words, tags


def main():
    writer, parts, seen = Writer(SEED), {"dev": [], "train": []}, set()
    for name, size in [("dev", DEV), ("train", TRAIN)]:
        writer.held_out, intents = name == "dev", list(REQUESTS)
        while len(parts[name]) < size:
            intent = intents[len(parts[name]) % len(intents)]
            words, tags = writer.request(intent)
            text = " ".join(words).lower()
            # No request is in both parts, and none but those without slots comes twice.
            if not words or text in seen:
                continue
            if name == "dev" or any(tag != "O" for tag in tags):
                seen.add(text)
            parts[name].append((words, tags, intent))
    held_out = {" ".join(word.lower().split()) for words in OPEN.values() for word in words[len(words) * 3 // 4 :]}
    for words, tags, _ in parts["train"]:
        text = f" {' '.join(words).lower()}"
        assert not any(f" {word}" in text for word in held_out), text
    for name, part in parts.items():
        writer.rng.shuffle(part)
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requests", name)
        os.makedirs(folder, exist_ok=True)
        for file_name, lines in [("seq.in", [" ".join(words) for words, _, _ in part]),
                                 ("seq.out", [" ".join(tags) for _, tags, _ in part]),
                                 ("label", [intent for _, _, intent in part])]:
            with open(os.path.join(folder, file_name), "w", encoding="utf-8", newline="\n") as file:
                file.writelines(line + "\n" for line in lines)


main()
